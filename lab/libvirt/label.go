package libvirt

import "fmt"

// label says how one of libvirtd's security models is to treat a domain.
type label struct {
	Type    string `xml:"type,attr"`
	Model   string `xml:"model,attr"`
	Relabel string `xml:"relabel,attr,omitempty"`
	Label   string `xml:"label,omitempty"`
}

// ownLabels make a domain the lab's own: its QEMU runs as the user who runs the
// lab, as a local one does, and so may use the run directory, which nobody else
// may. A system's libvirtd would give it a user of its own (model dac, which it
// always has), and hide files from it that the description names only to QEMU
// (apparmor, selinux: model is the one it has, if any). A session's libvirtd has
// none of these. Nothing is relabelled: the files are ours before and after.
func ownLabels(driver, model string, uid, gid int) []label {
	if driver != systemDriver {
		return nil
	}
	labels := []label{{"static", "dac", "no", fmt.Sprintf("+%d:+%d", uid, gid)}}
	return append(labels, poolLabels(driver, model)...)
}

// poolLabels are those of a domain whose files are a pool's: QEMU runs as whom libvirtd has chosen, who
// owns them, and is not hidden from those that the description names only to QEMU.
func poolLabels(driver, model string) []label {
	if driver == systemDriver && (model == "apparmor" || model == "selinux") {
		return []label{{Type: "none", Model: model}}
	}
	return nil
}
