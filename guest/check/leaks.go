package check

import (
	"os"
	"strings"
	"time"

	"kerninst/agent/kdev"
)

// kmemleak is where a kernel that looks for leaks is asked (Documentation/dev-tools/kmemleak.rst).
const kmemleak = "/sys/kernel/debug/kmemleak"

// LooksForLeaks reports whether the kernel knows of what it has allocated who has an address of it.
func LooksForLeaks() bool {
	_, err := os.Stat(kmemleak)
	return err == nil
}

// young is how long an object is not suspected after it was allocated (mm/kmemleak.c, MSECS_MIN_AGE), and a second.
const young = 6 * time.Second

// Leaks has the kernel look, if it can, for what the module, which is loaded, has allocated and nobody has an address of any
// more. What has changed since the last look is suspected in the next, so there are two.
func Leaks() error {
	if !LooksForLeaks() {
		return nil
	}
	time.Sleep(young)
	for range 2 {
		if err := os.WriteFile(kmemleak, []byte("scan"), 0); err != nil {
			return err
		}
	}
	found, err := os.ReadFile(kmemleak)
	Report("memory that nobody has an address of any more", strings.Count(string(found), "unreferenced object"),
		err == nil && !strings.Contains(string(found), "["+kdev.ModuleName+"]"), "%s, %v", found, err)
	return nil
}
