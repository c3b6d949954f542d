package libvirt

import (
	"strings"
	"testing"
)

func TestParse(t *testing.T) {
	for uri, want := range map[string]struct{ driver, key, pool string }{
		"qemu:///system":                                       {"qemu:///system", defaultSocket, ""},
		"qemu+unix:///system":                                  {"qemu:///system", defaultSocket, ""},
		"qemu+unix:///system?socket=/a/b":                      {"qemu:///system", "/a/b", ""},
		"qemu+unix:///system?socket=/a/b&pool=p":               {"qemu:///system", "/a/b", "p"},
		"qemu:///session?socket=/a%20b":                        {"qemu:///session", "/a b", ""},
		"qemu+unix:///session?socket=/a/virtqemud-s":           {"qemu:///session", "/a/virtqemud-s", ""},
		"qemu+ssh://h/system":                                  {"qemu:///system", "ssh @h: " + defaultSocket, "kerninst"},
		"qemu+ssh://u@h.x:22/session?socket=/s&keyfile=/k":     {"qemu:///session", "ssh u@h.x:22 /s", "kerninst"},
		"qemu+ssh://u@[::1]/system?pool=p&known_hosts=/n":      {"qemu:///system", "ssh u@[::1]: " + defaultSocket, "p"},
		"qemu://h/system":                                      {"qemu:///system", "tls h:", "kerninst"},
		"qemu+tls://h:1/system?pkipath=/p&pool=q":              {"qemu:///system", "tls h:1", "q"},
		"qemu+tls://127.0.0.1/session?pkipath=%2Fa%20b%2Fpki3": {"qemu:///session", "tls 127.0.0.1:", "kerninst"},
	} {
		got, err := Parse(uri)
		if err != nil {
			t.Errorf("%s: %v", uri, err)
			continue
		}
		if got.listener == nil || got.URI != uri || string(got.driver) != want.driver || got.way.key() != want.key || got.pool != want.pool {
			t.Errorf("%s: %+v, by %q, want %+v", uri, got, got.way.key(), want)
		}
	}
}

func TestParseRefuses(t *testing.T) {
	for uri, want := range map[string]string{
		"":                                      "not a libvirt URI",
		"nowhere":                               "not a libvirt URI",
		"%":                                     "not a URI",
		"xen:///system":                         "for QEMU",
		"qemu+ssh:///system":                    "which host?",
		"qemu+tls:///system":                    "which host?",
		"qemu+tcp://localhost/system":           "use ssh or tls",
		"qemu+ext:///system":                    "use ssh or tls",
		"qemu+unix://host/system":               "is this machine's",
		"qemu:///":                              "/system or /session",
		"qemu:system":                           "/system or /session",
		"qemu:///embed?root=/x":                 "/system or /session",
		"qemu:///session":                       "?socket=",
		"qemu+ssh://h/session":                  "?socket=",
		"qemu:///system?socket=a":               "must be absolute",
		"qemu:///system?mode=direct":            `"mode" is unknown`,
		"qemu:///system?sokcet=/a":              "did you mean socket",
		"qemu:///system?socket=/a&socket=/b":    "twice",
		"qemu:///system?socket=/a&pool=":        "is empty",
		"qemu:///system?keyfile=/a":             `"keyfile" is unknown`,
		"qemu+tls://h/system?socket=/a":         `"socket" is unknown`,
		"qemu+tls://h/system?no_verify=1":       `"no_verify" is unknown`,
		"qemu+tls://h/system?pkipath=a":         "must be absolute",
		"qemu:///system?%zz=":                   "parameters",
		"qemu:///system?socket=/" + long:        "108 bytes",
		"qemu:///system?socket=/a#b":            "no #",
		"qemu+unix://user@/system?socket=/a":    "no user",
		"qemu+tls://user@h/system":              "no user",
		"qemu+ssh://u:secret@h/system":          "a password is not taken",
		"qemu+ssh://-oProxyCommand=x/system":    "no name",
		"qemu+ssh://-l@h/system":                "no name",
		"qemu+tls://-h/system":                  "no name",
		"qemu+ssh://h/system?socket=/a:b":       "colon",
		"qemu+ssh://h/system?known_hosts=a%20b": "several words",
	} {
		got, err := Parse(uri)
		if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "host ") {
			t.Errorf("%s: %v, want %q", uri, err, want)
		}
		if got != (Backend{}) {
			t.Errorf("%s: %+v beside an error", uri, got)
		}
	}
}

var long = strings.Repeat("x", maxSocket)
