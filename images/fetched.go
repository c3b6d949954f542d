package images

import (
	"os"
	"sync"
	"time"
)

// How often it is looked at what has come, and how many steps are said of the whole at the most. Tests look sooner.
var lookFetched = 5 * time.Second

const fetchedSteps = 10

// tellFetched says now and then how much of so many bytes has come to a folder, until the function that it returns is
// called: of what takes seconds nothing is said.
func (b *builder) tellFetched(dir string, size int64) (end func()) {
	done, ended := make(chan struct{}), sync.WaitGroup{}
	ended.Go(func() {
		tick := time.NewTicker(lookFetched)
		defer tick.Stop()
		for said := int64(0); ; {
			select {
			case <-done:
				return
			case <-tick.C:
			}
			if has := bytesIn(dir); has*fetchedSteps/max(size, 1) > said {
				said = has * fetchedSteps / size
				b.say("fetched %d of %d MB", has/1e6, size/1e6)
			}
		}
	})
	return func() { close(done); ended.Wait() }
}

// bytesIn is how much is in the files of a folder.
func bytesIn(dir string) (n int64) {
	files, _ := os.ReadDir(dir) // a folder that has gone has nothing
	for _, f := range files {
		if st, err := f.Info(); err == nil && st.Mode().IsRegular() {
			n += st.Size()
		}
	}
	return n
}
