package images

import (
	"context"
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
)

// tapTranslator is the software that makes SystemTap's modules, on the host.
const tapTranslator = "systemtap-translator"

// TapFolder is where SystemTap's modules are in a guest.
const TapFolder = "/lib/kerninst/systemtap/"

// tapArches are the kernel's ISAs in SystemTap's words, and what its makefiles are told besides: of
// riscv64, one of the functions that read arguments has no prototype, which is a warning, and all
// warnings are errors.
var tapArches = map[string]string{"amd64": "x86_64", "arm64": "arm64", "riscv64": "riscv -B KCFLAGS=-Wno-error=missing-prototypes"}

// tapName is what SystemTap takes for a module's name.
var tapName = regexp.MustCompile(`^[a-z][a-z0-9_]{0,40}$`)

// SystemTap translates scripts for the kernel. Of each there is NAME.ko in TapFolder, or, where
// SystemTap makes no module of it, NAME.said with its words.
func SystemTap(ctx context.Context, opt Options, scripts map[string]string) ([]File, error) {
	b, err := newBuilder(opt)
	if err == nil {
		err = b.cache.use(ctx)
	}
	if err != nil || len(scripts) == 0 {
		return nil, err
	}
	if b.own != nil {
		return tapsOfOwn(scripts), nil
	}
	made, err := b.taps(ctx, scripts)
	if err != nil {
		return nil, err
	}
	var out []File
	for _, name := range sortedNames(made) {
		d := made[name]
		if err := b.cache.verify(d); err != nil {
			b.cache.discard(d, name, err)
			return nil, err
		}
		if d.Size > 0 {
			out = append(out, File{Path: TapFolder + name, Mode: 0o644, Source: b.cache.object(d)})
		}
	}
	return out, nil
}

// tapsOfOwn says of each script why there is no module of it for a kernel of one's own.
func tapsOfOwn(scripts map[string]string) []File {
	out := SystemTapModules(scripts)
	for k := range out {
		out[k].Path = strings.TrimSuffix(out[k].Path, ".ko") + ".said"
		out[k].Data = []byte("SystemTap translates for Debian's kernels: the headers of one's own are not in the toolchain\n")
	}
	return out
}

// SystemTapModules are the modules of scripts, without content.
func SystemTapModules(scripts map[string]string) (out []File) {
	for name := range scripts {
		out = append(out, File{Path: TapFolder + name + ".ko", Mode: 0o644})
	}
	slices.SortFunc(out, func(x, y File) int { return strings.Compare(x.Path, y.Path) })
	return out
}

// taps are, of each script, a module and what was said, of which one is empty.
func (b *builder) taps(ctx context.Context, scripts map[string]string) (files, error) {
	sel, err := b.choose(ctx)
	if err != nil {
		return nil, err
	}
	host := *b
	if host.t, err = targetOf(b.host); err != nil {
		return nil, err
	}
	stap, err := host.software(ctx, tapTranslator)
	if err != nil {
		return nil, err
	}
	j, err := b.tapJob(sel, scripts)
	if err != nil {
		return nil, err
	}
	key := []string{b.treeKey(sel), sourceKey(j.sources)}
	for _, argv := range j.argv {
		key = append(key, argv...)
	}
	for _, at := range sortedNames(stap) {
		key = append(key, at, stap[at].SHA256)
	}
	return b.cache.made(ctx, "systemtap", keyOf(key...), func() (files, error) {
		for _, at := range sortedNames(stap) {
			data, err := os.ReadFile(b.cache.object(stap[at]))
			if err != nil {
				return nil, fmt.Errorf("images: %w", err)
			}
			j.sources = append(j.sources, source{"stap" + at, data})
		}
		root, err := b.tree(ctx, sel)
		if err != nil {
			return nil, err
		}
		b.say("translating %d scripts of SystemTap's for %s", len(scripts), b.t.name)
		return root.build(ctx, j)
	})
}

// tapBuild translates each script of the folder: $1 is the release of the kernel, $2 its ISA as in
// tapArches, $3 the prefix of the compilers, $4 the host's triplet. What SystemTap's
// checks of the headers have found is kept for the next script. Its temporary folder has a
// name of its own each time, which would come into the module. Linux 6.12 has no uprobe_unregister
// any more, which version 5.1 looks for as any module is loaded, also of one without uprobes,
// unless it is exported: it is said to be.
const tapBuild = `
here=$PWD
chmod +x stap/usr/bin/stap stap/lib*/ld-linux*
export SYSTEMTAP_DIR=$here/cache SYSTEMTAP_TAPSET=$here/stap/usr/share/systemtap/tapset SYSTEMTAP_RUNTIME=$here/stap/usr/share/systemtap/runtime
for script in *.stp; do
	name=${script%.stp}
	mkdir -p work/$name
	if ! stap/lib*/ld-linux* --library-path $here/stap/usr/lib/$4 stap/usr/bin/stap -p4 --tmpdir=$here/work/$name \
		--sysroot=$here/root -r /usr/src/linux-headers-$1 -a $2 -D STAPCONF_UPROBE_UNREGISTER_EXPORTED -B CROSS_COMPILE=$3 -B CC=${3}gcc-14 -m $name $script >said 2>&1; then
		grep -q '^Pass [1-4]: ' said || { cat said >&2; exit 1; }
		grep -v -e '^Pass' -e '^Tip' said >$name.said
		: >$name.ko
	else
		${3}strip --strip-debug $name.ko
		: >$name.said
	fi
done
`

// tapJob is the translation, as far as scripts and kernel decide about it.
func (b *builder) tapJob(sel *selection, scripts map[string]string) (job, error) {
	host, err := targetOf(b.host)
	if err != nil {
		return job{}, err
	}
	release := sel.Kernel + "-" + b.t.name
	j := job{name: "systemtap", argv: [][]string{{"sh", "-c", tapBuild, "sh", release, tapArches[b.t.name], b.t.triplet + "-", host.triplet}}}
	for _, name := range slices.Sorted(maps.Keys(scripts)) {
		if !tapName.MatchString(name) {
			return j, fmt.Errorf("images: %q is no name for a module of SystemTap's: want %s", name, tapName)
		}
		j.sources = append(j.sources, source{name + ".stp", []byte(scripts[name])})
		j.outputs = append(j.outputs, name+".ko", name+".said")
	}
	j.sources = append(j.sources, source{"root/boot/System.map-" + release, tapSymbols(scripts)})
	return j, nil
}

// tapFunction is where a script names a function of the kernel's.
var tapFunction = regexp.MustCompile(`kprobe\.function\("(\w+)"\)`)

// tapSymbols is a System.map with the functions that scripts name. Without debugging information
// SystemTap only asks it whether there is such a function: where, the kernel is asked when
// the probe is put there, and a name that it does not know is refused then. Debian has the
// whole map only in a package of a gigabyte.
func tapSymbols(scripts map[string]string) []byte {
	names := map[string]bool{}
	for _, text := range scripts {
		for _, m := range tapFunction.FindAllStringSubmatch(text, -1) {
			names[m[1]] = true
		}
	}
	var out strings.Builder
	for k, name := range slices.Sorted(maps.Keys(names)) {
		fmt.Fprintf(&out, "%016x T %s\n", 0xffffffff80000000+uint64(k+1)*0x1000, name)
	}
	return []byte(out.String())
}
