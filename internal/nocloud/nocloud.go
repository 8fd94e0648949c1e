// Package nocloud writes disks from which cloud-init reads a guest's metadata without a server.
package nocloud

import (
	"bytes"
	"cmp"
	_ "embed"
	"io"
	"strings"

	"github.com/kdomanski/iso9660"
	"gopkg.in/yaml.v3"

	"croft"
	"croft/internal/userdata"
)

// Label is the volume label by which guests find a NoCloud disk.
const Label = "cidata"

// Zone is the availability zone of guests on a host without a location. Some programs require a value.
const Zone = "default"

// padding is the number of zero bytes after the image. Readers probe for other file systems up to offset 68 KiB;
// busybox rejects a smaller disk before it reads its label, and a CD drive may read ahead. genisoimage adds the same
// amount.
const padding = 150 * 2048

// File is a file of a disk.
type File struct {
	Name string
	Body []byte
}

// WriteDisk writes an ISO 9660 image with a volume label. The names stay as they are, in the plain directory: ISO 9660
// leaves such names to agreement, and Linux, cloud-init and busybox accept them.
func WriteDisk(w io.Writer, label string, files []File) (err error) {
	image, err := iso9660.NewWriter()
	if err != nil {
		return err
	}
	defer func() {
		if cleanup := image.Cleanup(); err == nil {
			err = cleanup
		}
	}()
	for _, f := range files {
		if err := image.AddFile(bytes.NewReader(f.Body), f.Name); err != nil {
			return err
		}
	}
	if err := image.WriteTo(w, label); err != nil {
		return err
	}
	_, err = w.Write(make([]byte, padding))
	return err
}

// Meta is the file meta-data, in YAML.
type Meta struct {
	InstanceID string            `yaml:"instance-id"`
	Hostname   string            `yaml:"local-hostname"`
	Zone       string            `yaml:"availability-zone"`
	PublicKeys []string          `yaml:"public-keys,omitempty"`
	Tags       map[string]string `yaml:"tags,omitempty"`
}

// Hostname returns a guest's name as a DNS label (RFC 1123): characters other than letters, digits and dashes
// become dashes. If nothing is left, it is vm- and the start of the UUID.
func Hostname(name string, id croft.InstanceID) string {
	label := strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= '0' && r <= '9':
			return r
		case r >= 'A' && r <= 'Z':
			return r + 'a' - 'A'
		}
		return '-'
	}, name)
	label = strings.Trim(label, "-")
	label = strings.Trim(label[:min(len(label), 63)], "-")
	return cmp.Or(label, "vm-"+string(id[:min(len(id), 8)]))
}

//go:embed reporter.sh
var reporter []byte

// Reporter returns a script with which cloud-init's own Python reports to the metadata server, if there is one, how the
// guest's set-up ended. cloud-init runs it at the first boot only.
func Reporter() userdata.Part { return userdata.Part{Name: "croft-report", Data: reporter} }

// BootReporter is like Reporter, and cloud-init runs it at each boot.
func BootReporter() userdata.Part {
	return userdata.Part{Name: "croft-report", Data: append([]byte("#cloud-boothook\n"), reporter...)}
}

// Marshal returns a value as YAML, as in the files of a disk.
func Marshal(v any) ([]byte, error) {
	var b bytes.Buffer
	e := yaml.NewEncoder(&b)
	e.SetIndent(2)
	if err := e.Encode(v); err != nil {
		return nil, err
	}
	return b.Bytes(), e.Close()
}
