package image

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"croft"
	"croft/internal/testing/patient"
)

// needsSandbox skips tests on machines that cannot run a sandbox.
func needsSandbox(t *testing.T) {
	t.Helper()
	for _, program := range []string{"bwrap", "qemu-img"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skip(err)
		}
	}
	if os.Geteuid() != 0 {
		t.Skip("a sandbox needs root")
	}
}

// madeAs returns a disk of 4 MiB with data, in a format of qemu-img, and the disk as raw.
func madeAs(t *testing.T, format string, options ...string) (file, raw []byte) {
	t.Helper()
	dir := t.TempDir()
	raw = bootRecord(4 << 20)
	from, to := filepath.Join(dir, "raw"), filepath.Join(dir, "disk")
	if err := os.WriteFile(from, raw, 0o600); err != nil {
		t.Fatal(err)
	}
	args := append(append([]string{"convert", "-f", "raw", "-O", format}, options...), from, to)
	if out, err := exec.Command("qemu-img", args...).CombinedOutput(); err != nil {
		t.Fatalf("%s: %v", out, err)
	}
	file, err := os.ReadFile(to)
	if err != nil {
		t.Fatal(err)
	}
	return file, raw
}

// convert stages a file and converts it.
func (c *Copies) convert(t *testing.T, file []byte) (croft.ImageID, croft.ImageFile, error) {
	t.Helper()
	id, sum := croft.NewImageID(), sha256.Sum256(file)
	if err := os.WriteFile(c.Staged(id), file, 0o600); err != nil {
		t.Fatal(err)
	}
	got, err := c.Convert(t.Context(), id, croft.ImageFile{SHA256: hex.EncodeToString(sum[:])}, 1<<30)
	return id, got, err
}

// ova returns an archive of regular files, or of the entries as change changes them.
func ova(t *testing.T, change func(*tar.Header), files ...string) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for i := 0; i < len(files); i += 2 {
		h := &tar.Header{Name: files[i], Mode: 0o600, Size: int64(len(files[i+1])), Typeflag: tar.TypeReg}
		if change != nil {
			change(h)
		}
		err := w.WriteHeader(h)
		if err == nil && h.Size > 0 {
			_, err = w.Write([]byte(files[i+1]))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func TestForeignDisksAreConverted(t *testing.T) {
	t.Parallel()
	needsSandbox(t)
	c := newCopies(t, 0)
	vmdk, raw := madeAs(t, "vmdk")
	streamed, _ := madeAs(t, "vmdk", "-o", "subformat=streamOptimized")
	vhdx, _ := madeAs(t, "vhdx")
	vhd, _ := madeAs(t, "vpc", "-o", "force_size=on")
	vdi, _ := madeAs(t, "vdi")
	for what, file := range map[string][]byte{"VMDK": vmdk, "compressed VMDK": streamed, "VHDX": vhdx, "VHD": vhd,
		"VDI": vdi,
		"OVA": ova(t, nil, "box.ovf", "<Envelope/>", "box.mf", "SHA1", "box-disk1.vmdk", string(streamed))} {
		id, got, err := c.convert(t, file)
		if err != nil {
			t.Errorf("%s: %v", what, err)
			continue
		}
		img, have := c.Get(id)
		if !have || got.Format != "qcow2" || img.Digest != got.SHA256 || got.DiskBytes != int64(len(raw)) {
			t.Errorf("%s: %+v %+v", what, got, img)
			continue
		}
		back := filepath.Join(t.TempDir(), "back")
		if out, err := exec.Command("qemu-img", "convert", "-f", "qcow2", "-O", "raw", img.Path, back).
			CombinedOutput(); err != nil {
			t.Fatalf("%s: %v", out, err)
		}
		if b, err := os.ReadFile(back); err != nil || !bytes.Equal(b, raw) {
			t.Errorf("%s: the disk has other data: %v", what, err)
		}
		info, err := os.Stat(img.Path)
		if err != nil || info.Mode().Perm() != imageMode {
			t.Errorf("%s: %v %v", what, info, err)
		}
	}
	for _, name := range c.names(t) {
		if !strings.HasSuffix(name, ".qcow2") {
			t.Errorf("%s is left", name)
		}
	}
}

// described replaces the description inside a VMDK, and lets its header have no capacity, so that QEMU reads it.
func described(vmdk []byte, text string) []byte {
	changed := bytes.Clone(vmdk)
	at := 512 * int(binary.LittleEndian.Uint64(changed[28:]))
	size := 512 * int(binary.LittleEndian.Uint64(changed[36:]))
	binary.LittleEndian.PutUint64(changed[12:], 0)
	clear(changed[at : at+size])
	copy(changed[at:at+size], text)
	return changed
}

func TestHostileDisksGetNothingFromAConversion(t *testing.T) {
	t.Parallel()
	needsSandbox(t)
	c := newCopies(t, 0)
	secret := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(secret, bytes.Repeat([]byte("a secret of the host"), 1<<14), 0o644); err != nil {
		t.Fatal(err)
	}
	vmdk, _ := madeAs(t, "vmdk")
	vdi, _ := madeAs(t, "vdi")
	description := func(of, line string) string {
		return "# Disk DescriptorFile\nversion=1\nCID=fffffffe\nparentCID=ffffffff\ncreateType=\"" + of +
			"\"\n" + line + "\n"
	}
	huge := bytes.Clone(vmdk)
	binary.LittleEndian.PutUint64(huge[12:], 1<<62)
	hugeVDI := bytes.Clone(vdi)
	binary.LittleEndian.PutUint64(hugeVDI[0x170:], 1<<62)
	backed := filepath.Join(t.TempDir(), "backed")
	if out, err := exec.Command("qemu-img", "create", "-q", "-f", "qcow2", "-F", "raw", "-b", secret, backed).
		CombinedOutput(); err != nil {
		t.Fatalf("%s: %v", out, err)
	}
	qcow2, err := os.ReadFile(backed)
	if err != nil {
		t.Fatal(err)
	}
	cut := ova(t, nil, "box.vmdk", string(vmdk))[:2000]
	link := func(kind byte, to string) func(*tar.Header) {
		return func(h *tar.Header) {
			if h.Name == "disk.vmdk" {
				h.Typeflag, h.Linkname, h.Size = kind, to, 0
			}
		}
	}
	for what, file := range map[string][]byte{
		"a VMDK whose extent is a file of the host": described(vmdk, description("monolithicFlat",
			`RW 640 FLAT "`+secret+`" 0`)),
		"a VMDK whose extent is /etc/shadow": described(vmdk, description("monolithicFlat",
			`RW 2 FLAT "/etc/shadow" 0`)),
		"a VMDK whose extent is a device": described(vmdk, description("vmfs", `RW 640 VMFS "/dev/sda"`)),
		"a VMDK whose extent is in a network": described(vmdk, description("vmfs",
			`RW 640 VMFS "nbd://127.0.0.1:10809"`)),
		"a VMDK that is only a description": []byte(description("monolithicFlat", `RW 640 FLAT "`+secret+`" 0`)),
		"a VMDK with a parent": described(vmdk, strings.Replace(description("monolithicSparse",
			`parentFileNameHint="`+secret+`"`+"\nRW 8192 SPARSE \"/in\""), "parentCID=ffffffff", "parentCID=12345678",
			1)),
		"a VMDK of 2 ZiB":                huge,
		"a VDI of 4 EiB":                 hugeVDI,
		"a qcow2 with a backing file":    qcow2,
		"a damaged VMDK":                 append([]byte("KDMV"), bytes.Repeat([]byte{0xff}, 1<<16)...),
		"an ESX disk":                    append([]byte("COWD"), bytes.Repeat([]byte{0}, 1<<16)...),
		"text":                           []byte("This is no disk."),
		"an OVA with a way out":          ova(t, nil, "../../etc/cron.d/x.vmdk", string(vmdk)),
		"an OVA with an absolute name":   ova(t, nil, "/etc/cron.d/x.vmdk", string(vmdk)),
		"an OVA with a symbolic link":    ova(t, link(tar.TypeSymlink, secret), "box.ovf", "x", "disk.vmdk", ""),
		"an OVA with a hard link":        ova(t, link(tar.TypeLink, secret), "box.ovf", "x", "disk.vmdk", ""),
		"an OVA with a device":           ova(t, link(tar.TypeBlock, ""), "box.ovf", "x", "disk.vmdk", ""),
		"an OVA with several disks":      ova(t, nil, "a.vmdk", string(vmdk), "b.vmdk", string(vmdk)),
		"an OVA with a description":      ova(t, nil, "a.vmdk", description("monolithicFlat", `RW 640 FLAT "x" 0`)),
		"an OVA without a disk":          ova(t, nil, "box.ovf", "<Envelope/>"),
		"an OVA that ends too early":     cut,
		"an OVA with a disk that is cut": ova(t, nil, "a.vmdk", string(vmdk[:600])),
	} {
		id, got, err := c.convert(t, file)
		if croft.KindOf(err) == croft.Invalid {
			continue
		}
		img, have := c.Get(id)
		if err != nil || !have {
			t.Errorf("%s: %+v %v", what, got, err)
			continue
		}
		// QEMU may see an empty disk; it must not see the host's data.
		b, failed := os.ReadFile(img.Path)
		if failed != nil || bytes.Contains(b, []byte("secret")) || bytes.Contains(b, []byte("root:")) {
			t.Errorf("%s has the host's data: %v", what, failed)
		}
		t.Logf("%s is a disk of %d bytes", what, got.DiskBytes)
		if err := c.Remove(id); err != nil {
			t.Fatal(err)
		}
	}
	if left := c.names(t); len(left) > 0 {
		t.Errorf("left: %q", left)
	}
}

func TestAnotherUploadThanAnnouncedIsNotConverted(t *testing.T) {
	t.Parallel()
	needsSandbox(t)
	c := newCopies(t, 0)
	vmdk, _ := madeAs(t, "vmdk")
	id := croft.NewImageID()
	if err := os.WriteFile(c.Staged(id), vmdk, 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := c.Convert(t.Context(), id, croft.ImageFile{SHA256: strings.Repeat("0", 64)}, 1<<30)
	if croft.KindOf(err) != croft.Invalid || !strings.Contains(err.Error(), "SHA-256") {
		t.Error(err)
	}
	id, _, err = c.convert(t, vmdk)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Remove(id); err != nil {
		t.Fatal(err)
	}
	c.space = &space{free: func(string) (int64, error) { return slack, nil }}
	if _, _, err = c.convert(t, vmdk); croft.KindOf(err) != croft.NoCapacity {
		t.Errorf("on a full disk: %v", err)
	}
}

// What an attacker could do who takes over the program in a sandbox.
func TestASandboxHoldsWhatRunsInIt(t *testing.T) {
	t.Parallel()
	needsSandbox(t)
	dir := t.TempDir()
	in, out := filepath.Join(dir, "in"), filepath.Join(dir, "out")
	run := func(change func(*sandbox), script string) (string, error) {
		t.Helper()
		for _, file := range []string{in, out} {
			if err := os.WriteFile(file, nil, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		s := sandbox{in: in, out: out, most: 1 << 20, memory: 1 << 30, time: patient.Longest}
		if change != nil {
			change(&s)
		}
		err := s.run(t.Context(), "sh", "-c", script)
		said, failed := os.ReadFile(out)
		if failed != nil {
			t.Fatal(failed)
		}
		return string(said), err
	}
	if said, err := run(nil, "echo 'use Socket; print PF_INET' | perl > /out"); said != "2" || err != nil {
		t.Fatal(said, err)
	}
	said, err := run(nil, "{ id -u; echo /*; ls -A /dev /proc; } > /out 2>&1; true")
	if err != nil || strings.HasPrefix(said, "0\n") ||
		!strings.Contains(said, "/bin /in /lib /lib64 /out /usr\n") || strings.Count(said, "cannot access") != 2 {
		t.Errorf("it sees: %s %v", said, err)
	}
	for what, script := range map[string]string{
		"reads a file of the host":   "cat /etc/shadow",
		"writes what others execute": "echo > /usr/bin/x",
		"writes its input":           "echo x > /in",
		"makes files":                "echo > /x",
		"becomes root":               "echo '$> = 0; $> == 0 or die' | perl",
		"mounts":                     "mount -t tmpfs none /usr",
		"makes a user namespace":     "unshare -U true",
		"opens a socket":             "echo 'use Socket; socket(S, PF_INET, SOCK_STREAM, 0) or die' | perl",
	} {
		if _, err := run(nil, script); croft.KindOf(err) != croft.Invalid {
			t.Errorf("a program in a sandbox %s: %v", what, err)
		}
	}
	if _, err := run(nil, "head -c 2000000 /dev/zero > /out || head -c 2000000 /usr/bin/* > /out"); err == nil {
		t.Error("it writes more than it may")
	}
	if info, err := os.Stat(out); err != nil || info.Size() > 1<<20 {
		t.Errorf("it wrote %d bytes: %v", info.Size(), err)
	}
	if _, err := run(nil, "echo '$x = \"x\" x 2_000_000_000' | perl"); croft.KindOf(err) != croft.Invalid {
		t.Errorf("it gets more memory than it may: %v", err)
	}
	_, err = run(func(s *sandbox) { s.time = time.Second }, "while :; do :; done")
	if croft.KindOf(err) != croft.Invalid {
		t.Errorf("it runs for longer than it may: %v", err)
	}
	if owner, err := exec.Command("stat", "-c", "%u", in, out).Output(); err != nil || string(owner) != "0\n0\n" {
		t.Errorf("its files belong to %s: %v", owner, err)
	}
}
