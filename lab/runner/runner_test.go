package runner

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
)

// scheduler is a runner whose guests are calls of do.
func scheduler(jobs int, do func(string)) *Runner {
	r := New(Runner{Jobs: jobs, Progress: func(string, ...any) {}})
	r.do = func(_ context.Context, g *Guest) {
		g.Err = context.Canceled // there is no outcome to have
		do(g.Request.Name)
	}
	return r
}

// Guests in turn run in their order, and nothing runs beside them, also when
// others were asked for before and after.
func TestInTurn(t *testing.T) {
	var running atomic.Int32
	var mu sync.Mutex
	var order []string
	var crowded []string
	r := scheduler(3, func(name string) {
		defer running.Add(-1)
		if now := running.Add(1); name[0] == 't' {
			mu.Lock()
			defer mu.Unlock()
			if order = append(order, name); now != 1 {
				crowded = append(crowded, name)
			}
		}
	})
	other := func() {
		for range 20 {
			r.Start(context.Background(), Request{Name: "other"})
		}
	}
	var list []Request
	var want string
	for i := range 10 {
		list = append(list, Request{Name: fmt.Sprint("turn", i)})
		want += fmt.Sprint(list[i].Name, " ")
	}
	other()
	for i, p := range r.StartInTurn(context.Background(), list) {
		if got := p.Wait().Request.Name; got != list[i].Name {
			t.Errorf("guest %d is %s", i, got)
		}
		other()
	}
	r.Drain()
	got := ""
	for _, name := range order {
		got += name + " "
	}
	if got != want || len(crowded) > 0 {
		t.Errorf("order %s; beside others: %v", got, crowded)
	}
}

// As many guests run at a time as there are slots.
func TestSlots(t *testing.T) {
	const jobs = 3
	var together sync.WaitGroup
	together.Add(jobs)
	r := scheduler(jobs, func(string) {
		together.Done()
		together.Wait()
	})
	for range jobs {
		r.Start(context.Background(), Request{})
	}
	r.Drain()
}

// Who gives up is answered, whether a guest waits for a slot or for its turn.
func TestGivingUp(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	started := make(chan string)
	r := scheduler(1, func(name string) {
		started <- name
		<-ctx.Done()
	})
	turns := r.StartInTurn(ctx, []Request{{Name: "a"}, {Name: "b"}})
	<-started
	waiting := r.Start(ctx, Request{Name: "c"})
	cancel()
	for _, p := range []*Pending{turns[1], waiting} {
		if g := p.Wait(); g.Err != context.Canceled {
			t.Errorf("%s: %v", g.Request.Name, g.Err)
		}
	}
	r.Drain()
}
