package images

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"
)

// What has come is said, no tenth twice, and nothing when there is nothing new.
func TestTellFetched(t *testing.T) {
	defer func(d time.Duration) { lookFetched = d }(lookFetched)
	lookFetched = time.Millisecond
	said := make(chan string, 100)
	b := &builder{say: func(format string, args ...any) { said <- fmt.Sprintf(format, args...) }}
	dir := t.TempDir()
	const mb = 1e6
	file := filepath.Join(dir, "part")
	must(t, os.WriteFile(file, nil, 0o600))
	end := b.tellFetched(dir, 100*mb)
	var got []string
	for _, size := range []int64{mb, 31 * mb, 100 * mb} {
		must(t, os.Truncate(file, size))
		if size == mb { // less than a tenth
			time.Sleep(20 * lookFetched)
			continue
		}
		got = append(got, <-said)
	}
	time.Sleep(20 * lookFetched)
	end()
	if want := []string{"fetched 31 of 100 MB", "fetched 100 of 100 MB"}; !slices.Equal(got, want) || len(said) > 0 {
		t.Errorf("%q and %d more, want %q", got, len(said), want)
	}
}
