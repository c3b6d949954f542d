package libvirt

import (
	"strings"
	"testing"
)

func TestParse(t *testing.T) {
	for uri, want := range map[string]Backend{
		"qemu:///system":                             {socket: defaultSocket, driver: "qemu:///system"},
		"qemu+unix:///system":                        {socket: defaultSocket, driver: "qemu:///system"},
		"qemu+unix:///system?socket=/a/b":            {socket: "/a/b", driver: "qemu:///system"},
		"qemu:///session?socket=/a%20b":              {socket: "/a b", driver: "qemu:///session"},
		"qemu+unix:///session?socket=/a/virtqemud-s": {socket: "/a/virtqemud-s", driver: "qemu:///session"},
	} {
		want.URI = uri
		got, err := Parse(uri)
		if got.listener == nil {
			t.Errorf("%s: no listener", uri)
		}
		got.listener = nil
		if err != nil || got != want {
			t.Errorf("%s: %+v, %v, want %+v", uri, got, err, want)
		}
	}
}

func TestParseRefuses(t *testing.T) {
	for uri, want := range map[string]string{
		"":                                   "not a libvirt URI",
		"nowhere":                            "not a libvirt URI",
		"%":                                  "not a URI",
		"xen:///system":                      "for QEMU",
		"qemu+ssh://host/system":             "images are not pushed yet",
		"qemu+ssh:///system":                 "images are not pushed yet",
		"qemu+tcp://localhost/system":        "images are not pushed yet",
		"qemu://host/system":                 "images are not pushed yet",
		"qemu:///":                           "/system or /session",
		"qemu:system":                        "/system or /session",
		"qemu:///embed?root=/x":              "/system or /session",
		"qemu:///session":                    "?socket=",
		"qemu:///system?socket=a":            "must be absolute",
		"qemu:///system?mode=direct":         "the one parameter",
		"qemu:///system?socket=/" + long:     "108 bytes",
		"qemu:///system?socket=/a#b":         "the one parameter",
		"qemu+unix://user@/system?socket=/a": "the one parameter",
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
