package images

import (
	"context"
	"errors"
	"maps"
	"slices"
)

// Between are the releases of kernels from the one that a word means to the one that another does, as
// Options.Kernel takes them: of all that can be had, from the oldest to the newest. These are what
// Debian's suites have, as far as their indexes can be read, and what is cached.
func Between(ctx context.Context, opt Options, from, to string) ([]string, error) {
	for _, word := range []string{from, to} {
		if word != "" && !versionForm.MatchString(word) {
			return nil, &NoVersionError{word}
		}
	}
	opt.Kernel = ""
	b, err := newBuilder(opt)
	if err != nil {
		return nil, err
	}
	if err := b.cache.use(ctx); err != nil {
		return nil, err
	}
	have, err := b.offered(ctx)
	if err != nil {
		return nil, err
	}
	list, err := between(b.t, have, from, to)
	if none := (*NoKernelError)(nil); errors.As(err, &none) {
		if uris, e := b.mirrors(); e == nil {
			none.Mirror = uris[0]
		}
	}
	return list, err
}

// OrderError says that of two kernels the first is not the older one.
type OrderError struct{ From, To string }

func (e *OrderError) Error() string { return e.From + " is not older than " + e.To }

// offered are all releases that can be had, with their versions where an index tells them.
func (b *builder) offered(ctx context.Context) (map[string]string, error) {
	have := map[string]string{}
	cached, err := Kernels(b.opt)
	if err != nil {
		return nil, err
	}
	for _, release := range cached {
		have[release] = ""
	}
	for _, of := range append([]debianSuite{trixie}, others...) {
		mirrors, known := b.mirrorsOf(of)
		if !known {
			continue
		}
		_, found, err := b.kernelsOf(ctx, of, mirrors)
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		if err != nil {
			b.say("%v", err)
			continue
		}
		maps.Copy(have, found)
	}
	return have, nil
}

// between are the releases from one word's to another's.
func between(t target, have map[string]string, from, to string) ([]string, error) {
	releases := slices.SortedFunc(maps.Keys(have), compareReleases)
	var ends [2]int
	for k, word := range []string{from, to} {
		release := newest(word, have, t)
		if release == "" {
			return nil, &NoKernelError{Version: word, Arch: t.name, Known: []suiteKernels{{suite: "all suites", releases: releases}}}
		}
		ends[k] = slices.Index(releases, release)
	}
	if ends[0] >= ends[1] {
		return nil, &OrderError{releases[ends[0]], releases[ends[1]]}
	}
	return releases[ends[0] : ends[1]+1], nil
}
