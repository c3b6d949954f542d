package main

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"kerninst/images"
	"kerninst/scenarios"
)

// TestLoadAny: a kernel's lack of a module that a guest can be without is no error, of any other it
// is; and nobody is asked for what is known to be lacking.
func TestLoadAny(t *testing.T) {
	const may = scenarios.IfAny
	for _, c := range []struct {
		modules, lacks []string
		loaded         string // empty: the first of lacks is said not to be there
		asked          int
	}{
		{[]string{"null_blk", "ext4"}, nil, "null_blk ext4", 1},
		{[]string{"null_blk", "crc" + may, "ext4"}, nil, "null_blk crc ext4", 1},
		{[]string{"null_blk", "crc" + may, "ext4", "lz4" + may}, []string{"lz4", "crc"}, "null_blk ext4", 3},
		{[]string{"crc" + may, "ext4"}, []string{"ext4"}, "", 1},
		{[]string{"crc" + may, "ext4"}, []string{"ext4", "crc"}, "", 2},
	} {
		asked := 0
		files, err := loadAny(c.modules, func(names []string) (files []images.File, err error) {
			asked++
			for _, n := range names {
				if slices.Contains(c.lacks, n) {
					return nil, &images.NoModuleError{Name: n}
				}
				files = append(files, images.File{Path: n})
			}
			return files, nil
		})
		var none *images.NoModuleError
		var got []string
		for _, f := range files {
			got = append(got, f.Path)
		}
		if strings.Join(got, " ") != c.loaded || asked != c.asked || (c.loaded == "") != (errors.As(err, &none) && none.Name == c.lacks[0]) {
			t.Errorf("%v of a kernel without %v: %v, %v, asked %d times", c.modules, c.lacks, got, err, asked)
		}
	}
}
