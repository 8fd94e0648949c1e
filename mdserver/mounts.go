package mdserver

import (
	"cmp"
	_ "embed"
	"fmt"
	"strings"

	"croft"
	"croft/internal/userdata"
)

//go:embed mounts.sh
var mountScript string

// mountParts returns the script that formats and mounts volumes at each boot. It is a boothook, and not fs_setup and
// mounts of a cloud-config: those are replaced by the user's, and fs_setup formats a disk that has another file system.
func (g Guest) mountParts() []userdata.Part {
	if len(g.Mounts) == 0 {
		return nil
	}
	var lines strings.Builder
	for _, m := range g.Mounts {
		// The values have neither blanks nor characters with a meaning in the shell: see croft.CheckMounts.
		fmt.Fprintf(&lines, "%s %s %s\n", m.Volume, m.Path, cmp.Or(m.Filesystem, croft.DefaultFilesystem))
	}
	script := "#cloud-boothook\n" + strings.Replace(mountScript, "#include volumes\n", lines.String(), 1)
	return []userdata.Part{{Name: "croft-mounts", Data: []byte(script)}}
}
