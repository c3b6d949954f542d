package scenarios

import (
	"strconv"

	"kerninst/agent/wire"
	"kerninst/lab/vm"
)

// someModule is loaded by few, has code of many kinds, and is easily made to run:
// binfmt_misc starts programs by what their files begin with.
const someModule = "binfmt_misc"

// moduleFunctions are entered by moduleLoad; not every build has each as a function.
var moduleFunctions = []string{
	"load_misc_binary", "bm_register_write", "bm_status_read", "bm_status_write", "bm_entry_read", "bm_entry_write",
	"entry_status", "parse_command", "create_entry", "check_special_flags", "scanarg", "bm_get_inode", "bm_evict_inode",
	"remove_binfmt_handler", "kill_node", "put_binfmt_handler", "bm_fill_super", "bm_get_tree", "bm_init_fs_context", "bm_put_super",
}

// moduleLoad registers a kind of program, looks at it, runs one, and takes it back.
const moduleLoad = `cd $(mktemp -d) && mkdir m && mount -t binfmt_misc b m || exit 1
me=t$$; printf '#kern' >p; chmod +x p
for i in $(seq 20); do
echo ":$me:M::#kern::/bin/true:OC" >m/register || exit 1
cat m/$me m/status; echo 0 >m/$me; cat m/$me; echo 1 >m/$me; ./p || exit 1
echo ":$me:E::kern::/bin/true:" >m/register; echo :bad >m/register; echo 1 >m/status
echo -1 >m/$me
done 2>&1 | sed s/$me/me/ | md5sum
umount m`

func moduleGuests(string) []Guest {
	var points []*wire.Point
	for _, f := range moduleFunctions {
		points = append(points, &wire.Point{Module: someModule, Function: f, Each: wire.Each_INSTRUCTION})
	}
	look := func(name, against string) *wire.Step {
		s := snapshot(name, against)
		s.GetSnapshot().Modules = []string{someModule}
		return s
	}
	steps := func(copies uint32) *wire.Job {
		all := announced(splice("splice", points...))
		all.GetSplice().SkipRefused = true
		load := func(name string) *wire.Step {
			s := shell(name, moduleLoad)
			s.GetRun().Copies, s.GetRun().Metered = copies, name == "work"
			return s
		}
		return job(load("bare"), look("before", ""), all, shell("pinned", "! rmmod "+someModule+" 2>&1"), load("work"), read("count"), unsplice("splice"), look("after", "before"),
			shell("unload", "rmmod "+someModule+" && ! grep "+someModule+" /proc/modules"))
	}
	modules := []string{someModule}
	return []Guest{
		{Name: "1cpu", CPUs: 1, Time: vm.Exact, Oracle: true, Modules: modules, Job: steps(1)},
		{Name: "2cpu", CPUs: 2, Time: vm.Host, Oracle: true, Modules: modules, Job: steps(2)},
		{Name: "parts", CPUs: 1, Time: vm.Exact, Job: parts()},
	}
}

// A function of guest/module/peer/nap, and one that is named like a part of it, both called
// by who reads a parameter.
const (
	partsModule = "nap"
	partsOf     = "nap_count"
	partsRead   = 100
)

// parts splices the one while the other is spliced: what is ours at the one's begin is in the
// kernel's list of places without probes, and by name it would bar the other.
func parts() *wire.Job {
	begin := func(name, function string) *wire.Step {
		return splice(name, &wire.Point{Module: partsModule, Function: function, Search: true})
	}
	return job(shell("load", "insmod /lib/kerninst/"+partsModule+".ko"), begin("whole", partsOf), begin("part", partsOf+".part.0"),
		shell("work", "for i in $(seq "+strconv.Itoa(partsRead)+"); do cat /sys/module/"+partsModule+"/parameters/asleep; done"),
		read("count"), unsplice("part"), unsplice("whole"))
}

// fewestInModule is how many of the points moduleLoad must pass.
var fewestInModule = map[string]float64{"amd64": 200, "arm64": 600, "riscv64": 180}

func checkModule(t *T) {
	for _, guest := range []string{"1cpu", "2cpu"} {
		bare := t.ran(guest, "bare")
		for k, out := range t.ran(guest, "work") {
			t.equal(guest+": what the load came to", string(out), string(bare[k]))
		}
		t.atLeast(guest+": points that were executed", float64(t.coverage("module", guest).executed), fewestInModule[t.Arch])
		t.ran(guest, "pinned")
		t.ran(guest, "unload")
	}
	const guest = "parts"
	t.ran(guest, "work")
	for _, v := range t.done(guest, "count").Values {
		t.equal(guest+": "+v.Spec+" was counted", v.Count, uint64(partsRead))
	}
	t.equal(guest+": points", len(t.done(guest, "count").Values), 2)
}
