package images

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// keyrings are where Debian's own packages put the archive's keys.
var keyrings = []string{
	"/usr/share/keyrings/debian-archive-keyring.gpg",
	"/usr/share/keyrings/debian-archive-keyring.pgp",
}

func keyring() (string, error) {
	for _, k := range keyrings {
		if _, err := os.Stat(k); err == nil {
			return k, nil
		}
	}
	return "", errors.New("images: no keys to verify Debian's signatures: " +
		"apt-get install debian-archive-keyring")
}

// apt is Debian's apt with a state of its own, for one suite, mirror, host and target.
type apt struct {
	mirror       string
	of           debianSuite // on the mirror
	host, target string      // architectures
	dir          string      // of its state
}

// aptConf is everything apt is told. It is read through APT_CONFIG, before
// apt looks for the host's configuration, and keeps it from doing so: hooks
// and lists of the host are not ours. $DIR, $HOST, $ARCHES are replaced.
const aptConf = `Dir::Etc::main "$DIR/empty";
Dir::Etc::parts "$DIR/empty.d";
Dir::Etc::sourcelist "$DIR/sources.list";
Dir::Etc::sourceparts "$DIR/empty.d";
Dir::Etc::preferences "$DIR/empty";
Dir::Etc::preferencesparts "$DIR/empty.d";
Dir::Etc::trusted "$DIR/empty";
Dir::Etc::trustedparts "$DIR/empty.d";
Dir::State "$DIR/state";
Dir::State::lists "$DIR/lists";
Dir::State::status "$DIR/empty";
Dir::Cache "$DIR/cache";
Dir::Log "$DIR/log";
APT::Architecture "$HOST";
APT::Architectures { $ARCHES };
APT::Install-Recommends "false";
APT::Install-Suggests "false";
APT::Get::Assume-Yes "true";
APT::Sandbox::User "root";
APT::Update::Error-Mode "any";
Acquire::Languages "none";
Acquire::Retries "0";
Acquire::ForceHash "SHA256";
Acquire::AllowInsecureRepositories "false";
Acquire::AllowWeakRepositories "false";
Acquire::AllowDowngradeToInsecureRepositories "false";
`

// notInherited are the host's Acquire settings that would change what is
// fetched rather than how.
var notInherited = []string{
	"Acquire::IndexTargets", "Acquire::Languages", "Acquire::CompressionTypes",
	"Acquire::Changelogs", "Acquire::GzipIndexes", "Acquire::Retries",
	"Acquire::ForceHash", "Acquire::AllowInsecureRepositories",
	"Acquire::AllowWeakRepositories", "Acquire::AllowDowngradeToInsecureRepositories",
}

// hostAcquire picks how the host fetches (proxies, timeouts, date checks) out
// of apt-config's dump.
func hostAcquire(dump string) string {
	var keep strings.Builder
	for _, line := range strings.Split(dump, "\n") {
		name, value, _ := strings.Cut(line, " ")
		drop := !strings.HasPrefix(name, "Acquire::") || value == `"";` ||
			slices.ContainsFunc(notInherited, func(p string) bool {
				return name == p || strings.HasPrefix(name, p+"::")
			})
		if !drop {
			fmt.Fprintln(&keep, line)
		}
	}
	return keep.String()
}

// newApt prepares the configuration; nothing is fetched yet.
func newApt(ctx context.Context, c *cache, mirror string, of debianSuite, host, target string) (*apt, error) {
	if err := checkMirror(mirror); err != nil {
		return nil, err
	}
	for _, tool := range []string{"apt-get", "apt-config", "apt-cache", "dpkg-deb"} {
		if _, err := exec.LookPath(tool); err != nil {
			return nil, fmt.Errorf("images: %s is not here: apt-get install apt dpkg (a Debian host is needed)", tool)
		}
	}
	key, err := keyring()
	if err != nil {
		return nil, err
	}
	dump, err := exec.CommandContext(ctx, "apt-config", "dump", "Acquire").Output()
	if err != nil {
		return nil, fmt.Errorf("images: the host's apt configuration cannot be read: apt-config: %w", err)
	}
	name, err := c.path(true, "apt", keyOf(mirror, of.suite, host, target)[:16], "apt.conf")
	if err != nil {
		return nil, err
	}
	a := &apt{mirror: mirror, of: of, host: host, target: target, dir: filepath.Dir(name)}
	for _, d := range []string{"empty.d", "state", "lists/partial", "cache/archives/partial", "log"} {
		if err := os.MkdirAll(filepath.Join(a.dir, d), 0o755); err != nil {
			return nil, c.unwritable(err)
		}
	}
	arches := strings.NewReplacer("$DIR", a.dir, "$HOST", host, "$ARCHES", a.quotedArches())
	return a, errors.Join(
		writeFile(name, []byte(hostAcquire(string(dump))+arches.Replace(aptConf)), 0o644),
		writeFile(filepath.Join(a.dir, "empty"), nil, 0o644),
		writeFile(filepath.Join(a.dir, "sources.list"), fmt.Appendf(nil,
			"deb [signed-by=%s] %s %s main\n", key, mirror, of.suite), 0o644))
}

func (a *apt) arches() []string {
	if a.host == a.target {
		return []string{a.host}
	}
	return []string{a.host, a.target}
}

func (a *apt) quotedArches() string {
	var b strings.Builder
	for _, s := range a.arches() {
		fmt.Fprintf(&b, "%q; ", s)
	}
	return b.String()
}

// run starts one of apt's tools in dir and returns what it printed.
func (a *apt) run(ctx context.Context, dir, tool string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, tool, args...)
	tie(cmd)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "APT_CONFIG="+filepath.Join(a.dir, "apt.conf"),
		"LC_ALL=C.UTF-8", "DEBIAN_FRONTEND=noninteractive")
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		if ctx.Err() != nil {
			return "", ctx.Err()
		}
		return "", &aptError{tool + " " + args[0], err, aptMessages(errs.String())}
	}
	return out.String(), nil
}

// aptError is what apt says when it fails.
type aptError struct {
	command string
	err     error
	said    string
}

func (e *aptError) Error() string { return fmt.Sprintf("%s: %v: %s", e.command, e.err, e.said) }
func (e *aptError) Unwrap() error { return e.err }

// aptMessages keeps apt's errors and warnings, once each.
func aptMessages(stderr string) string {
	var keep []string
	for _, line := range strings.Split(stderr, "\n") {
		line = strings.TrimSpace(line)
		if (strings.HasPrefix(line, "E:") || strings.HasPrefix(line, "W:")) && !slices.Contains(keep, line) {
			keep = append(keep, line)
		}
	}
	return strings.Join(keep, "; ")
}

// update fetches and verifies the archive's index.
func (a *apt) update(ctx context.Context) error {
	_, err := a.run(ctx, a.dir, "apt-get", "update", "-q")
	if err == nil {
		err = a.checkRelease()
	}
	var failed *aptError
	if !errors.As(err, &failed) {
		return err
	}
	return fmt.Errorf("images: mirror %s %s (%s)", a.mirror, aptCause(failed.said, a.of.suite), failed.said)
}

// aptCause is what is the matter with a mirror by what apt says, where its address is, too.
func aptCause(said, suite string) string {
	for _, k := range aptCauses {
		if k.says.MatchString(said) {
			return strings.ReplaceAll(k.means, "$SUITE", suite)
		}
	}
	return "cannot be reached: without a network, lab image import takes what lab image export wrote elsewhere"
}

// aptCauses puts apt's words into ours, in which $SUITE is replaced; the first that matches counts.
var aptCauses = []struct {
	says  *regexp.Regexp
	means string
}{
	{regexp.MustCompile(`NO_PUBKEY|no public key|Missing key`),
		"has Debian $SUITE signed by a key that the host does not have: apt-get install --only-upgrade debian-archive-keyring"},
	{regexp.MustCompile(`not signed|signatures? (was|were|couldn)|GPG error|Sub-process .*sqv`),
		"has a Debian $SUITE that is not signed by Debian: use another (MIRROR=)"},
	{regexp.MustCompile(`does not have a Release file|\b404 +Not Found|File not found`),
		"has no Debian $SUITE: use another, such as MIRROR=http://mirror.example/debian"},
	{regexp.MustCompile(`Hash Sum mismatch|unexpected size`),
		"is being updated or is broken: wait, or use another (MIRROR=)"},
	{regexp.MustCompile(`not valid yet|expired`),
		"has an index whose dates do not fit the host's clock"},
}

// checkRelease confirms that the verified Release is Debian's.
func (a *apt) checkRelease() error {
	names, _ := filepath.Glob(filepath.Join(a.dir, "lists", "*_dists_"+a.of.suite+"_*Release"))
	for _, name := range names {
		b, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		s := string(b)
		if strings.Contains(s, "\nOrigin: "+a.of.origin+"\n") && strings.Contains(s, "\nCodename: "+a.of.suite+"\n") {
			return nil
		}
	}
	return fmt.Errorf("images: mirror %s: its Release of %s does not say Origin: %s: use another (MIRROR=)",
		a.mirror, a.of.suite, a.of.origin)
}

// offer is a package on the mirror.
type offer struct {
	Package
	file string // that apt-get download creates
}

// uriLine is one line of --print-uris: address, file name, size, hash.
var uriLine = regexp.MustCompile(`(?m)^'([^']+)' (\S+) (\d+) SHA256:([0-9a-f]{64})$`)

func (a *apt) parseOffers(out string) ([]offer, error) {
	var all []offer
	for _, m := range uriLine.FindAllStringSubmatch(out, -1) {
		part := strings.Split(strings.TrimSuffix(m[2], ".deb"), "_")
		if len(part) != 3 {
			return nil, fmt.Errorf("images: apt names a file %q: want NAME_VERSION_ARCH.deb", m[2])
		}
		version, err := url.PathUnescape(part[1])
		if err != nil {
			return nil, fmt.Errorf("images: apt names a file %q: %w", m[2], err)
		}
		size, err := strconv.ParseInt(m[3], 10, 64)
		if err != nil {
			return nil, fmt.Errorf("images: apt names a size %q: %w", m[3], err)
		}
		all = append(all, offer{Package{part[0], version, part[2], Digest{m[4], size}, a.pathOf(m[1])}, m[2]})
	}
	return all, nil
}

// pathOf is where in the archive an address of apt's leads. What comes before that apt
// spells in its own way: file:/srv for file:///srv, and nobody's password.
func (a *apt) pathOf(address string) string {
	u, err := url.Parse(address)
	m, err2 := url.Parse(a.mirror)
	if err != nil || err2 != nil {
		return ""
	}
	path, ok := strings.CutPrefix(u.EscapedPath(), m.EscapedPath()+"/")
	if !ok || !inPool(path) {
		return ""
	}
	return path
}

// closure resolves what has to be unpacked for pkgs to run on the host.
func (a *apt) closure(ctx context.Context, pkgs []string) ([]offer, error) {
	out, err := a.run(ctx, a.dir, "apt-get", append([]string{"install", "--print-uris", "-qq"}, pkgs...)...)
	if err != nil {
		return nil, fmt.Errorf("images: mirror %s: %w", a.mirror, err)
	}
	return a.parseOffers(out)
}

// forAll are packages that are for all architectures.
var forAll = []string{firmwarePackage, "media-types", "squid-common", "squid-langpack", "systemtap-common"}

// exactly resolves packages for the target, without what they depend on.
func (a *apt) exactly(ctx context.Context, pkgs []string) ([]offer, error) {
	var named []string
	for _, p := range pkgs {
		if !slices.Contains(forAll, p) {
			p += ":" + a.target
		}
		named = append(named, p)
	}
	return a.named(ctx, named)
}

// named resolves packages by their names, each with its architecture unless it is for all.
func (a *apt) named(ctx context.Context, pkgs []string) ([]offer, error) {
	out, err := a.run(ctx, a.dir, "apt-get", append([]string{"download", "--print-uris", "-qq"}, pkgs...)...)
	if err != nil {
		return nil, fmt.Errorf("images: mirror %s: %w", a.mirror, err)
	}
	all, err := a.parseOffers(out)
	if err == nil && len(all) != len(pkgs) {
		err = fmt.Errorf("images: mirror %s has %d of %v for %s", a.mirror, len(all), pkgs, a.target)
	}
	return all, err
}

// download fetches into dir; apt verifies hashes against the signed index.
func (a *apt) download(ctx context.Context, dir string, all []offer) error {
	args := []string{"download", "-qq"}
	for _, o := range all {
		name := o.Name
		if o.Arch != "all" {
			name += ":" + o.Arch
		}
		args = append(args, name+"="+o.Version)
	}
	if _, err := a.run(ctx, dir, "apt-get", args...); err != nil {
		return fmt.Errorf("images: mirror %s: %w", a.mirror, err)
	}
	return nil
}

// helper is apt's own downloader of files. Of each it is told the address, the name to
// give it, and its hash.
const helper = "/usr/lib/apt/apt-helper"

// What apt says of a file that a mirror does not have, or has with other bytes. Anything
// else that it says is about the mirror, or the way there.
var (
	gone       = regexp.MustCompile(`^(404|410) |No such file`)
	otherBytes = regexp.MustCompile(`Hash Sum mismatch|unexpected size`)
)

// fetch gets packages into dir by their paths, without an index, each under the name of
// its hash, and returns why it did not get the others, by their hashes. One goes ahead: of
// a mirror that does not answer, apt would wait for every file anew.
func (a *apt) fetch(ctx context.Context, dir string, pkgs []Package) (failed map[string]string, err error) {
	failed, err = a.fetchAtOnce(ctx, dir, pkgs[:1])
	why := failed[pkgs[0].SHA256]
	if err != nil || len(pkgs) == 1 || why != "" && !gone.MatchString(why) && !otherBytes.MatchString(why) {
		return failed, err
	}
	others, err := a.fetchAtOnce(ctx, dir, pkgs[1:])
	maps.Copy(failed, others)
	return failed, err
}

// fetchFailed is what apt says of a file: address, why.
var fetchFailed = regexp.MustCompile(`E: Failed to fetch (\S+)  ([^;]+)`)

func (a *apt) fetchAtOnce(ctx context.Context, dir string, pkgs []Package) (failed map[string]string, err error) {
	// Of a mirror's file: apt would make a link to it, not a copy.
	mirror := a.mirror
	if at, ok := strings.CutPrefix(mirror, "file:"); ok {
		mirror = "copy:" + at
	}
	args := []string{"download-file"}
	for _, p := range pkgs {
		args = append(args, mirror+"/"+p.Path, p.SHA256, "SHA256:"+p.SHA256)
	}
	_, err = a.run(ctx, dir, helper, args...)
	failed = map[string]string{}
	var said *aptError
	if !errors.As(err, &said) {
		return failed, err
	}
	for _, m := range fetchFailed.FindAllStringSubmatch(said.said, -1) {
		for _, p := range pkgs {
			if strings.HasSuffix(m[1], "/"+p.Path) {
				failed[p.SHA256] = m[2]
			}
		}
	}
	if len(failed) > 0 {
		return failed, nil
	}
	return failed, fmt.Errorf("images: mirror %s: %w", a.mirror, err)
}

// buildable are the kernels' images among packages, as apt names them. Suites keep images
// longer than the headers that the module is built with: what is without them does not count.
func buildable(packages []string, t target) (images []string) {
	for _, name := range packages {
		v, ok := releaseIn(name, t)
		if ok && slices.Contains(packages, "linux-headers-"+v+"-"+t.name) {
			images = append(images, name+":"+t.name)
		}
	}
	return images
}

// kernels lists the releases of Debian's stock kernel that the mirror has and the module can
// be built for, each with the version of its package.
func (a *apt) kernels(ctx context.Context, t target) (map[string]string, error) {
	names, err := a.run(ctx, a.dir, "apt-cache", "pkgnames", "linux-")
	if err != nil {
		return nil, fmt.Errorf("images: mirror %s: %w", a.mirror, err)
	}
	images := buildable(strings.Fields(names), t)
	found := map[string]string{}
	if len(images) == 0 {
		return found, nil // a suite need not have the architecture
	}
	described, err := a.show(ctx, images...)
	if err != nil {
		return nil, err
	}
	for _, s := range described {
		if v, ok := releaseIn(s["package"], t); ok && s["architecture"] == t.name {
			found[v] = s["version"]
		}
	}
	return found, nil
}

// show is what the index says of packages, each named with its architecture.
func (a *apt) show(ctx context.Context, pkgs ...string) ([]map[string]string, error) {
	out, err := a.run(ctx, a.dir, "apt-cache", append([]string{"show", "--no-all-versions"}, pkgs...)...)
	if err != nil {
		return nil, fmt.Errorf("images: mirror %s: %w", a.mirror, err)
	}
	return stanzasOf(out), nil
}

// releaseIn takes 6.12.107+deb13 out of linux-image-6.12.107+deb13-amd64.
func releaseIn(name string, t target) (release string, ok bool) {
	v, prefix := strings.CutPrefix(name, "linux-image-")
	v, suffix := strings.CutSuffix(v, "-"+t.name)
	return v, prefix && suffix && stockRelease.MatchString(v)
}

// stockRelease tells a release such as 6.12.107+deb13 from flavours (cloud,
// rt) and from packages without a version in their names. Until bookworm they were
// counted: 6.1.0-50.
var stockRelease = regexp.MustCompile(`^[0-9]+(\.[0-9]+)+(\+deb[0-9]+(\.[0-9]+)*|-[0-9]+)$`)

// current is the kernel that Debian's own metapackage asks for.
func (a *apt) current(ctx context.Context, t target) (string, error) {
	described, err := a.show(ctx, "linux-image-"+t.name+":"+t.name)
	if err != nil {
		return "", err
	}
	for _, s := range described {
		for _, dep := range strings.Split(s["depends"], ",") {
			name, _, _ := strings.Cut(strings.TrimSpace(dep), " ")
			if v, ok := releaseIn(name, t); ok {
				return v, nil
			}
		}
	}
	return "", fmt.Errorf("images: mirror %s: linux-image-%s depends on no kernel that is known here", a.mirror, t.name)
}
