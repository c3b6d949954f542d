package check

import "testing"

func TestPieces(t *testing.T) {
	for line, want := range map[string]int{
		"0x00000000a1b2c3d4-0x00000000e5f60718   12288 place_in_window+0x1f2/0x2e0 [kerninst] pages=2 vmalloc N0=2\n": 1,
		"0x00000000a1b2c3d4-0x00000000e5f60718   69632 0xffffffffc0a1b2c3 pages=16 vmalloc N0=16\n":                   1,
		"0x00000000a1b2c3d4-0x00000000e5f60718   20480 dup_task_struct+0x5a/0x1b0 pages=4 vmalloc N0=4\n":             0,
		"0x00000000a1b2c3d4-0x00000000e5f60718    8192 ioremap_prot+0x4e/0x80 phys=0x00000000fed00000 ioremap\n":      0,
		"0x00000000a1b2c3d4-0x00000000e5f60718   69632 pages=16 vmalloc N0=16\n":                                      0,
		"0x00000000a1b2c3d4-0x00000000e5f60718    8192 vm_map_ram\n":                                                  0,
		"0x00000000a1b2c3d4-0x00000000e5f60718    8192 unpurged vm_area\n":                                            0,
	} {
		if got := pieces(line); got != want {
			t.Errorf("%q: %d, want %d", line, got, want)
		}
	}
}
