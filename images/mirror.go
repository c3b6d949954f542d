package images

import (
	"bufio"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// hostMirrors lists the archives, but for those of security updates, which are no mirrors of
// all of Debian: see hostArchives.
func hostMirrors(dir string) []string {
	return slices.DeleteFunc(hostArchives(dir), isSecurity)
}

// securityMirrors are the archives of security updates alone.
func securityMirrors(dir string) []string {
	return slices.DeleteFunc(hostArchives(dir), func(uri string) bool { return !isSecurity(uri) })
}

func isSecurity(uri string) bool { return strings.HasSuffix(uri, "-security") }

// hostArchives lists the archives that the host's apt under dir (/etc/apt) is
// configured for, likely Debian ones first. Which of them is Debian's is for
// apt to find out: only a Release signed by Debian is accepted.
func hostArchives(dir string) []string {
	var all []string
	lists, _ := filepath.Glob(filepath.Join(dir, "sources.list.d", "*.list"))
	for _, name := range append([]string{filepath.Join(dir, "sources.list")}, lists...) {
		if b, err := os.ReadFile(name); err == nil {
			all = append(all, oneLineURIs(string(b))...)
		}
	}
	stanzas, _ := filepath.Glob(filepath.Join(dir, "sources.list.d", "*.sources"))
	for _, name := range stanzas {
		if b, err := os.ReadFile(name); err == nil {
			all = append(all, deb822URIs(string(b))...)
		}
	}
	var uris []string
	for _, u := range all {
		u = strings.TrimRight(u, "/")
		if checkMirror(u) == nil && !slices.Contains(uris, u) {
			uris = append(uris, u)
		}
	}
	slices.SortStableFunc(uris, func(a, b string) int { return rank(a) - rank(b) })
	return uris
}

func rank(uri string) int {
	if strings.HasSuffix(uri, "/debian") {
		return 0
	}
	return 1
}

// oneLineURIs reads "deb [options] URI suite component..." (sources.list(5)).
func oneLineURIs(text string) (uris []string) {
	for in := bufio.NewScanner(strings.NewReader(text)); in.Scan(); {
		line, _, _ := strings.Cut(in.Text(), "#")
		rest, ok := strings.CutPrefix(strings.TrimSpace(line), "deb")
		if !ok || rest == "" || !strings.ContainsAny(rest[:1], " \t") {
			continue
		}
		rest = strings.TrimSpace(rest)
		if strings.HasPrefix(rest, "[") {
			_, rest, _ = strings.Cut(rest, "]")
		}
		if f := strings.Fields(rest); len(f) >= 2 {
			uris = append(uris, f[0])
		}
	}
	return uris
}

// deb822URIs reads stanzas of fields, with continued lines, that are enabled
// and offer binary packages.
func deb822URIs(text string) (uris []string) {
	for _, stanza := range stanzasOf(text) {
		if strings.EqualFold(stanza["enabled"], "no") ||
			!slices.Contains(strings.Fields(stanza["types"]), "deb") {
			continue
		}
		uris = append(uris, strings.Fields(stanza["uris"])...)
	}
	return uris
}

// stanzasOf parses deb822(5): paragraphs of "Field: value" with lower-case
// names in the result, continuation lines joined by newlines.
func stanzasOf(text string) (all []map[string]string) {
	var cur map[string]string
	field := ""
	for _, line := range strings.Split(text, "\n") {
		switch {
		case strings.HasPrefix(line, "#"):
		case strings.TrimSpace(line) == "":
			cur, field = nil, ""
		case line[0] == ' ' || line[0] == '\t':
			if cur != nil && field != "" {
				cur[field] += "\n" + strings.TrimSpace(line)
			}
		default:
			name, value, ok := strings.Cut(line, ":")
			if !ok {
				continue
			}
			if cur == nil {
				cur = map[string]string{}
				all = append(all, cur)
			}
			field = strings.ToLower(name)
			cur[field] = strings.TrimSpace(value)
		}
	}
	return all
}

// checkMirror refuses what is no plain archive address: it becomes a line of
// apt's configuration.
func checkMirror(uri string) error {
	u, err := url.Parse(uri)
	ok := err == nil && !strings.ContainsAny(uri, " \t\n\"[]#") &&
		(u.Scheme == "file" && u.Path != "" ||
			(u.Scheme == "http" || u.Scheme == "https") && u.Host != "")
	if !ok {
		return fmt.Errorf("images: mirror %q is not an address: want one like http://mirror.example/debian", uri)
	}
	return nil
}
