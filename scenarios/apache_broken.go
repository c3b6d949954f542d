package scenarios

import (
	"cmp"
	"fmt"
	"strconv"

	"kerninst/lab/vm"
)

// apache-broken: what apache says when a part of it does not work. Each guest has one thing wrong
// with it, and the part that comes upon that has to say so, with what ab and Apache said; the guests
// beside it, and those of other scenarios, do what they do.

// apacheBreakage is one thing that is wrong, and what comes of it.
type apacheBreakage struct {
	name   string
	more   string   // a line of the configuration
	before string   // what a shell does before ab begins
	fails  string   // the part that does; empty: the workload
	says   []string // on stderr
}

// amid has a shell do something when more requests have been answered than before any were measured,
// and not yet all.
func amid(what string) string {
	return fmt.Sprintf("{ until [ $(wc -l </run/apache/access) -gt %d ]; do sleep 0.002; done; %s; } </dev/null >/dev/null 2>&1 &", 2*apacheWarm, what)
}

var apacheBreakages = []apacheBreakage{
	{name: "configuration", more: "EnableSendfiles On", fails: "start", says: []string{"Apache does not start:", "Invalid command 'EnableSendfiles'"}},
	{name: "port", more: "Listen 127.0.0.1:65536", fails: "start", says: []string{"Apache does not start:", "Invalid address or port"}},
	{name: "missing", before: "rm /srv/www/index.html", says: []string{"ab has not had", "Non-2xx responses:", "Apache's own words:"}},
	{name: "short", before: amid("echo short >/srv/www/index.html"), says: []string{"ab has not had", "Failed requests:"}},
	{name: "other", before: "tr 0 1 </srv/www/index.html >/run/other; cp /run/other /srv/www/index.html", says: []string{"The document that came has SHA-256"}},
	{name: "unlogged", before: amid(": >/run/apache/access"), says: []string{"Apache's log has not"}},
	{name: "late", before: "kill -STOP $(pidof apache2)", says: []string{"ab fails with exit status", "The timeout specified has expired"}},
	{name: "dead", before: "kill -KILL $(pidof apache2)", says: []string{"ab fails with exit status", "Connection refused", "Apache was gone."}},
	{name: "dies", before: amid("kill -KILL $(pidof apache2)"), says: []string{"ab fails with exit status", "Apache was gone.", "Apache's own words:"}},
	{name: "crashes", before: "kill -SEGV $(pidof apache2 | tr ' ' '\\n' | grep -vx $(cat /run/apache/started) | head -n 1)", fails: "stop", says: []string{"exit signal Segmentation fault"}},
}

func apacheBroken() []Scenario {
	return []Scenario{{Name: "apache-broken", Title: "what is wrong with Apache's guest is said by the part that comes upon it: a configuration, answers that are not right, a document that is another, ab that times out, Apache gone",
		Labels: []string{"workload", "proof"}, Guests: apacheBrokenGuests, Check: checkApacheBroken}}
}

func apacheBrokenGuests(string) (all []Guest) {
	for _, b := range apacheBreakages {
		all = append(all, b.guest())
	}
	return all
}

// part is the one that fails.
func (b apacheBreakage) part() string { return cmp.Or(b.fails, "work") }

// guest does all parts up to the one that fails.
func (b apacheBreakage) guest() Guest {
	steps := append(apacheBegins(b.more),
		shell("before", cmp.Or(b.before, ":")),
		apachePart("work", "work", "2", strconv.Itoa(25*apacheProcesses), strconv.Itoa(apacheProcesses)),
		apachePart("stop", "stop"))
	return Guest{Name: b.name, CPUs: 1, Time: vm.Exact, Software: []string{"apache"}, Job: job(upTo(b.part(), steps)...)}
}

func checkApacheBroken(t *T) { t.saysWhatIsWrong(apacheSaid()) }

func apacheSaid() (all []said) {
	for _, b := range apacheBreakages {
		all = append(all, said{b.name, b.part(), b.says})
	}
	return all
}
