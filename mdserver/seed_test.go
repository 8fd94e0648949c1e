package mdserver_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kdomanski/iso9660"

	"croft"
	"croft/mdserver"
)

// TestSeed reads the disks with isoinfo, an independent implementation, and with the library.
func TestSeed(t *testing.T) {
	one := web()
	one.MACs, one.Vendor = one.MACs[:1], nil
	for kind, write := range map[string]func(io.Writer, mdserver.Guest) error{
		"seed": mdserver.WriteSeed, "config-drive": mdserver.WriteConfigDrive,
	} {
		for name, g := range map[string]mdserver.Guest{"web": web(), "one-nic": one, "bare": bare()} {
			t.Run(kind+" of "+name, func(t *testing.T) {
				var disk bytes.Buffer
				if err := write(&disk, g); err != nil {
					t.Fatal(err)
				}
				if disk.Len() < 0x11000 || disk.Len()%2048 != 0 {
					t.Errorf("busybox does not look for the label of a disk of %d bytes", disk.Len())
				}
				got := read(t, disk.Bytes())
				if iso := readWithIsoinfo(t, disk.Bytes()); got != iso {
					t.Errorf("the library reads\n%s\nbut isoinfo reads\n%s", got, iso)
				}
				golden(t, kind+"-"+name+".golden", randomSeed.ReplaceAllString(got, `"random_seed":"..."`))
			})
		}
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
	return "label " + label + "\n" + readFiles(t, "", root)
}

func readFiles(t *testing.T, path string, dir *iso9660.File) (all string) {
	t.Helper()
	files, err := dir.GetChildren()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		if f.IsDir() {
			all += readFiles(t, path+f.Name()+"/", f)
			continue
		}
		var body bytes.Buffer
		if _, err := body.ReadFrom(f.Reader()); err != nil {
			t.Fatal(err)
		}
		all += "== " + path + f.Name() + "\n" + body.String()
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
		if !strings.Contains(name, ";") {
			continue // a directory
		}
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
	if got := read(t, disk.Bytes()); !strings.Contains(got, "== user-data\n"+string(g.UserData)+"== vendor-data\n") {
		t.Errorf("the disk does not hold %d bytes of user-data", len(g.UserData))
	}
}

// full fails every write.
type full struct{}

func (full) Write([]byte) (int, error) { return 0, errors.New("no space left on device") }

func TestASeedThatCannotBeWrittenNamesTheInstance(t *testing.T) {
	err := mdserver.WriteSeed(full{}, bare())
	if err == nil || !strings.Contains(err.Error(), "metadata disk of "+string(bareID)) ||
		!strings.Contains(err.Error(), "no space left") {
		t.Errorf("a full disk gives %v", err)
	}
}

func TestWhereAnOrderFindsItsMetadata(t *testing.T) {
	all := mdserver.Seeds{Server: true}
	tests := []struct {
		name  string
		host  mdserver.Seeds
		guest croft.GuestSettings
		want  croft.Metadata
		kind  croft.Kind
	}{
		{"what says nothing gets the server", all, croft.GuestSettings{}, croft.MetadataServer, ""},
		{"so does auto", all, croft.GuestSettings{Metadata: croft.MetadataAuto}, croft.MetadataServer, ""},
		{"without a server it is a disk", mdserver.Seeds{}, croft.GuestSettings{}, croft.MetadataNoCloud, ""},
		{"the host may prefer a disk", mdserver.Seeds{Server: true, Disk: true}, croft.GuestSettings{},
			croft.MetadataNoCloud, ""},
		{"who must have a token reads a disk while booting", all, croft.GuestSettings{IMDS: croft.IMDSRequired},
			croft.MetadataNoCloud, ""},
		{"so does who gets nothing from the server", all, croft.GuestSettings{IMDS: croft.IMDSOff},
			croft.MetadataNoCloud, ""},
		{"the server may be asked for", mdserver.Seeds{Server: true, Disk: true},
			croft.GuestSettings{Metadata: croft.MetadataServer, IMDS: croft.IMDSRequired}, croft.MetadataServer, ""},
		{"but not where there is none", mdserver.Seeds{}, croft.GuestSettings{Metadata: croft.MetadataServer}, "",
			croft.Invalid},
		{"a config drive may be asked for", all, croft.GuestSettings{Metadata: croft.MetadataConfigDrive},
			croft.MetadataConfigDrive, ""},
		{"a NoCloud disk may be asked for", all, croft.GuestSettings{Metadata: croft.MetadataNoCloud},
			croft.MetadataNoCloud, ""},
		{"nothing else may", all, croft.GuestSettings{Metadata: "floppy"}, "", croft.Invalid},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := tt.host.Source(croft.Order{Name: "web", Spec: croft.Spec{GuestSettings: tt.guest}})
			if got != tt.want || croft.KindOf(err) != tt.kind {
				t.Errorf("%q, error %v; want %q, kind %q", got, err, tt.want, tt.kind)
			}
		})
	}
}

func TestTheDiskIsTheOneAskedFor(t *testing.T) {
	for metadata, label := range map[croft.Metadata]string{"": "cidata", croft.MetadataNoCloud: "cidata",
		croft.MetadataConfigDrive: "config-2"} {
		var disk bytes.Buffer
		err := mdserver.Seeds{Vendor: []byte("#!/bin/sh\n")}.WriteSeed(t.Context(), &disk,
			croft.Order{Instance: webID, Name: "web", Spec: croft.Spec{
				GuestSettings: croft.GuestSettings{Metadata: metadata}}})
		if err != nil {
			t.Fatal(err)
		}
		if got := read(t, disk.Bytes()); !strings.HasPrefix(got, "label "+label+"\n") ||
			!strings.Contains(got, `filename=vendor-data`) {
			t.Errorf("for %q the disk is\n%s", metadata, got)
		}
	}
}
