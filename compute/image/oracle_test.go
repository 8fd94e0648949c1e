package image

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"croft/compute/image/format"
)

// reading is QEMU's view of an image. QEMU is the reference: it opens the images, so its view decides.
type reading struct {
	Opened  bool     `json:",omitempty"`
	Format  string   `json:",omitempty"`
	Virtual int64    `json:",omitempty"`
	Leads   []string `json:",omitempty"` // every other file or server that the image names
	Words   string   `json:",omitempty"` // QEMU's error, if it does not open the image
}

// question is an image, and the format given to QEMU; empty: QEMU probes.
type question struct {
	format  string
	content []byte
}

// askScript reads images by their descriptors, each with the format before it, and puts a zero byte before
// and after each exit code.
const askScript = `for q in "$@"; do
	qemu-img info --output=json ${q%%@*} /proc/self/fd/${q##*@} 2>&1
	printf '\0%d\0' $?
done`

// askQEMU runs qemu-img on images, confined as far as the machine allows: as nobody, without network and
// environment, with limits; an image has no name in the file system.
func askQEMU(questions ...question) ([]reading, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "prlimit", "--fsize=0", "--as=2147483648", "--cpu=60", "--core=0", "sh", "-c",
		askScript, "ask")
	cmd.Env, cmd.Dir, cmd.SysProcAttr = []string{"PATH=/usr/bin:/bin", "LC_ALL=C"}, "/", confined()
	for i, q := range questions {
		image, err := nameless(q.content)
		if err != nil {
			return nil, err
		}
		defer image.Close()
		cmd.ExtraFiles = append(cmd.ExtraFiles, image)
		told := ""
		if q.format != "" {
			told = "-f " + q.format
		}
		cmd.Args = append(cmd.Args, fmt.Sprintf("%s@%d", told, 3+i))
	}
	out, err := cmd.Output()
	answers := bytes.Split(out, []byte{0})
	if err != nil || len(answers) != 2*len(questions)+1 {
		return nil, fmt.Errorf("qemu-img: %w\n%s(the tests need Debian's packages qemu-utils and util-linux)", err, out)
	}
	var all []reading
	for i := range questions {
		r, err := parseReading(answers[2*i], string(answers[2*i+1]))
		if err != nil {
			return nil, err
		}
		all = append(all, r)
	}
	return all, nil
}

func parseReading(out []byte, code string) (reading, error) {
	if code != "0" {
		return reading{Words: fmt.Sprintf("%s (code %s)", bytes.TrimSpace(out), code)}, nil
	}
	var all map[string]any
	out = out[max(0, bytes.Index(out, []byte("{\n"))):] // skip warnings
	if err := json.Unmarshal(out, &all); err != nil {
		return reading{}, fmt.Errorf("qemu-img says %q: %w", out, err)
	}
	size, _ := all["virtual-size"].(float64)
	return reading{Opened: true, Format: fmt.Sprint(all["format"]), Virtual: int64(size), Leads: elsewhere("", all)},
		nil
}

// nameless returns a file in memory, which its holder can reopen.
func nameless(content []byte) (*os.File, error) {
	fd, err := unix.MemfdCreate("image", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(fd), "image")
	_, err = f.WriteAt(content, 0)
	return f, errors.Join(err, f.Chmod(0o444))
}

// confined returns the available restrictions: root, which runs the tests in most places, can use all of
// them; others get a user namespace if permitted.
var confined = func() func() *syscall.SysProcAttr {
	const namespaces = syscall.CLONE_NEWNET | syscall.CLONE_NEWIPC | syscall.CLONE_NEWUTS
	root := func() *syscall.SysProcAttr {
		return &syscall.SysProcAttr{
			Credential: &syscall.Credential{Uid: 65534, Gid: 65534}, Cloneflags: namespaces, Pdeathsig: syscall.SIGKILL,
		}
	}
	other := func() *syscall.SysProcAttr {
		return &syscall.SysProcAttr{
			Cloneflags: namespaces | syscall.CLONE_NEWUSER, Pdeathsig: syscall.SIGKILL,
			UidMappings: []syscall.SysProcIDMap{{ContainerID: 65534, HostID: os.Getuid(), Size: 1}},
			GidMappings: []syscall.SysProcIDMap{{ContainerID: 65534, HostID: os.Getgid(), Size: 1}},
		}
	}
	choose := sync.OnceValue(func() func() *syscall.SysProcAttr {
		for _, f := range []func() *syscall.SysProcAttr{root, other} {
			cmd := exec.Command("true")
			cmd.SysProcAttr = f()
			if cmd.Run() == nil {
				return f
			}
		}
		return func() *syscall.SysProcAttr { return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }
	})
	return func() *syscall.SysProcAttr { return choose()() }
}()

// elsewhere finds names of other files in qemu-img's output, at any depth.
func elsewhere(key string, value any) (found []string) {
	switch v := value.(type) {
	case map[string]any:
		for k, inner := range v {
			found = append(found, elsewhere(k, inner)...)
		}
	case []any:
		for _, inner := range v {
			found = append(found, elsewhere(key, inner)...)
		}
	case string:
		named := strings.Contains(key, "filename") || strings.Contains(key, "file") || strings.Contains(key, "backing")
		if named && !strings.HasPrefix(v, "/proc/self/fd/") && key != "backing-filename-format" {
			found = append(found, key+"="+v)
		}
	}
	return found
}

// taken is an accepted image in the cache's form.
type taken struct {
	format.Info
	content []byte
}

// questions returns the questions to QEMU about the image: with the detected format, and without one. A qcow2
// header is always recognized as such.
func (k taken) questions() []question {
	if k.Format == "qcow2" {
		return []question{{"", k.content}}
	}
	return []question{{k.Format, k.content}, {"", k.content}}
}

// problem compares the image with QEMU's answers: QEMU must find a disk of that size without references, and
// detect no other format. An image that QEMU does not open at all is no problem here.
func (k taken) problem(readings []reading) string {
	told, guessed := readings[0], readings[len(readings)-1]
	switch {
	case told.Opened && told.Virtual != k.VirtualSize:
		return fmt.Sprintf("taken as %+v, and QEMU finds %d bytes", k.Info, told.Virtual)
	case len(told.Leads) > 0:
		return fmt.Sprintf("taken as %+v, and for QEMU it leads to %q", k.Info, told.Leads)
	case guessed.Opened && (guessed.Format != k.Format || guessed.Virtual != k.VirtualSize || len(guessed.Leads) > 0):
		return fmt.Sprintf("taken as %+v, and QEMU would guess %+v", k.Info, guessed)
	}
	return ""
}
