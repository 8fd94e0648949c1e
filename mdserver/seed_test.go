package mdserver_test

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kdomanski/iso9660"

	"croft"
	"croft/mdserver"
)

// TestSeed reads the disk with isoinfo, which is not ours, and with the library.
func TestSeed(t *testing.T) {
	one := web()
	one.MACs = one.MACs[:1]
	for name, g := range map[string]mdserver.Guest{"web": web(), "one-nic": one, "bare": bare()} {
		t.Run(name, func(t *testing.T) {
			var disk bytes.Buffer
			if err := mdserver.WriteSeed(&disk, g); err != nil {
				t.Fatal(err)
			}
			if disk.Len() < 0x11000 || disk.Len()%2048 != 0 {
				t.Errorf("busybox does not look for the label of a disk of %d bytes", disk.Len())
			}
			golden(t, "seed-"+name+".golden", read(t, disk.Bytes()))
			if got := read(t, disk.Bytes()); got != readWithIsoinfo(t, disk.Bytes()) {
				t.Errorf("the library reads\n%s\nbut isoinfo reads\n%s", got, readWithIsoinfo(t, disk.Bytes()))
			}
		})
	}
}

func read(t *testing.T, disk []byte) string {
	t.Helper()
	image, err := iso9660.OpenImage(bytes.NewReader(disk))
	if err != nil {
		t.Fatal(err)
	}
	label, err := image.Label()
	if err != nil {
		t.Fatal(err)
	}
	root, err := image.RootDir()
	if err != nil {
		t.Fatal(err)
	}
	files, err := root.GetChildren()
	if err != nil {
		t.Fatal(err)
	}
	all := "label " + label + "\n"
	for _, f := range files {
		var body bytes.Buffer
		if _, err := body.ReadFrom(f.Reader()); err != nil {
			t.Fatal(err)
		}
		all += "== " + f.Name() + "\n" + body.String()
	}
	return all
}

func readWithIsoinfo(t *testing.T, disk []byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "seed.iso")
	if err := os.WriteFile(path, disk, 0o600); err != nil {
		t.Fatal(err)
	}
	isoinfo := func(args ...string) string {
		var complaints bytes.Buffer
		cmd := exec.CommandContext(t.Context(), "isoinfo", append([]string{"-i", path}, args...)...)
		cmd.Stderr = &complaints
		out, err := cmd.Output()
		if err != nil || complaints.Len() > 0 {
			t.Fatalf("isoinfo (Debian package genisoimage) %v: %v %s", args, err, complaints.String())
		}
		return string(out)
	}
	all := ""
	for line := range strings.Lines(isoinfo("-d")) {
		if label, ok := strings.CutPrefix(line, "Volume id: "); ok {
			all += "label " + label
		}
	}
	for name := range strings.Lines(isoinfo("-f")) {
		name = strings.TrimSuffix(name, "\n")
		all += "== " + strings.TrimSuffix(strings.TrimPrefix(name, "/"), ";1") + "\n" + isoinfo("-x", name)
	}
	return all
}

func TestSeedsDescribeAllInterfacesOfAnOrder(t *testing.T) {
	var disk bytes.Buffer
	order := croft.Order{Instance: webID, Name: "web"}
	if err := (mdserver.Seeds{Zone: "site2", NICs: 2}).WriteSeed(t.Context(), &disk, order); err != nil {
		t.Fatal(err)
	}
	got := read(t, disk.Bytes())
	for _, want := range []string{"availability-zone: site2\n", webID.MAC(0).String(), webID.MAC(1).String()} {
		if !strings.Contains(got, want) {
			t.Errorf("the disk lacks %q:\n%s", want, got)
		}
	}

	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if err := (mdserver.Seeds{}).WriteSeed(ended, &disk, order); !errors.Is(err, context.Canceled) {
		t.Errorf("without time left: %v", err)
	}
}

func TestASeedHoldsTheGreatestUserData(t *testing.T) {
	g := bare()
	g.UserData = bytes.Repeat([]byte("#"), croft.MaxUserData)
	var disk bytes.Buffer
	if err := mdserver.WriteSeed(&disk, g); err != nil {
		t.Fatal(err)
	}
	if got := read(t, disk.Bytes()); !strings.HasSuffix(got, "== user-data\n"+string(g.UserData)) {
		t.Errorf("the disk does not end in %d bytes of user-data", len(g.UserData))
	}
}

// full cannot take a byte.
type full struct{}

func (full) Write([]byte) (int, error) { return 0, errors.New("no space left on device") }

func TestASeedThatCannotBeWrittenNamesTheInstance(t *testing.T) {
	err := mdserver.WriteSeed(full{}, bare())
	if err == nil || !strings.Contains(err.Error(), "metadata disk of "+string(bareID)) || !strings.Contains(err.Error(), "no space left") {
		t.Errorf("a full disk gives %v", err)
	}
}
