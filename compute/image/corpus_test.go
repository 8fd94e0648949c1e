package image

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"

	"croft"
	"croft/compute/image/format"
	"croft/internal/testing/sample"
)

// Kinds of qcow2 header extensions.
const (
	extBackingFormat = 0xe2792aca
	extDataFile      = 0x44415441
	extCrypto        = 0x0537be77
)

// raceEnabled reports whether this program has the race detector.
var raceEnabled bool

// outside are names of files to which an image could refer.
func outside(t *testing.T) map[string]string {
	secret := writeFile(t, filepath.Join(t.TempDir(), "secret"), rawImage(1, 1<<20))
	return map[string]string{
		"a file":           "/etc/passwd",
		"a file beside it": "secret",
		"a disk":           secret,
		"a device":         "/dev/zero",
		"itself":           "/proc/self/fd/3",
		"file:":            "file:" + secret,
		"json: of a file":  `json:{"driver":"raw","file":{"driver":"file","filename":"` + secret + `"}}`,
		"json: of itself": `json:{"driver":"raw","offset":4096,"file":{"driver":"file","filename":"` +
			"/proc/self/fd/3" + `"}}`,
		"json: of nbd":  `json:{"driver":"nbd","server":{"type":"inet","host":"127.0.0.1","port":"10809"}}`,
		"nbd":           "nbd://127.0.0.1:10809/x",
		"nbd, a socket": "nbd+unix:///?socket=/run/x",
		"http":          "http://169.254.169.254/latest/user-data",
		"ssh":           "ssh://root@127.0.0.1/etc/shadow",
		"a directory":   "fat:rw:/etc",
		"a script":      "blkdebug::" + secret,
		"a fd":          "/dev/fd/0",
	}
}

// formats creates one disk of 2 MiB for each format and kind that QEMU can write.
func formats(t *testing.T) map[string][]byte {
	all := map[string][]byte{}
	dir := t.TempDir()
	for name, args := range map[string]string{
		"qcow2, version 2":             "-f qcow2 -o compat=0.10",
		"qcow2, version 3":             "-f qcow2",
		"qcow2, clusters of 512 bytes": "-f qcow2 -o cluster_size=512",
		"qcow2, clusters of 4 KiB":     "-f qcow2 -o cluster_size=4k",
		"qcow2, clusters of 2 MiB":     "-f qcow2 -o cluster_size=2M",
		"qcow2, extended L2":           "-f qcow2 -o extended_l2=on,cluster_size=128k",
		"qcow2, counts of 1 bit":       "-f qcow2 -o refcount_bits=1",
		"qcow2, counts of 64 bits":     "-f qcow2 -o refcount_bits=64",
		"qcow2, lazy counts":           "-f qcow2 -o lazy_refcounts=on",
		"qcow2, zstd":                  "-f qcow2 -o compression_type=zstd",
		"qcow2, allocated":             "-f qcow2 -o preallocation=metadata",
		"qcow2, encrypted (AES)":       "-f qcow2 --object secret,id=s,data=x -o compat=0.10,encrypt.format=aes,encrypt.key-secret=s",
		"qcow2, data elsewhere":        "-f qcow2 -o data_file=" + filepath.Join(dir, "data"),
		"qcow2, data elsewhere, raw":   "-f qcow2 -o data_file_raw=on,data_file=" + filepath.Join(dir, "data2"),
		"qcow":                         "-f qcow",
		"qcow, encrypted":              "-f qcow --object secret,id=s,data=x -o encrypt.format=aes,encrypt.key-secret=s",
		"qed":                          "-f qed",
		"parallels":                    "-f parallels",
		"vdi":                          "-f vdi",
		"vdi, fixed":                   "-f vdi -o static=on",
		"vhdx":                         "-f vhdx -o log_size=1M,block_size=1M",
		"vhdx, fixed":                  "-f vhdx -o log_size=1M,block_size=1M,subformat=fixed",
		"vpc":                          "-f vpc",
		"vpc, fixed":                   "-f vpc -o subformat=fixed",
		"vmdk, monolithicSparse":       "-f vmdk -o subformat=monolithicSparse",
		"vmdk, monolithicFlat":         "-f vmdk -o subformat=monolithicFlat",
		"vmdk, twoGbMaxExtentSparse":   "-f vmdk -o subformat=twoGbMaxExtentSparse",
		"vmdk, twoGbMaxExtentFlat":     "-f vmdk -o subformat=twoGbMaxExtentFlat",
		"vmdk, streamOptimized":        "-f vmdk -o subformat=streamOptimized",
		"vmdk, zeroed grains":          "-f vmdk -o zeroed_grain=on",
		"raw, of nothing but zeros":    "-f raw",
		"qcow2, version 2, on another": "-f qcow2 -o compat=0.10 -F raw -b " +
			writeFile(t, filepath.Join(dir, "base"), rawImage(1, 2<<20)),
		"qed, on another":                   "-f qed -F raw -b " + filepath.Join(dir, "base"),
		"vmdk, on another":                  "-f vmdk -F vmdk -b " + made(t, "vmdk", "2M"),
		"qcow2, on another, not to be read": "-f qcow2 -u -F raw -b /nonexistent",
	} {
		file := filepath.Join(dir, strings.NewReplacer(" ", "-", ",", "", "(", "", ")", "").Replace(name))
		qemu(t, "qemu-img", append(append([]string{"create", "-q"}, strings.Fields(args)...), file, "2M")...)
		all[name] = read(t, file)
	}
	for name, args := range map[string][]string{
		"qcow2, snapshots":   {"snapshot", "-c", "one"},
		"qcow2, a bitmap":    {"bitmap", "--add", "", "b"},
		"qcow2, as it grows": {"resize", "-q", "-f", "qcow2", "", "5G"},
	} {
		file := made(t, "qcow2", "2M")
		args = slices.Clone(args)
		if i := slices.Index(args, ""); i >= 0 {
			args[i] = file
		} else {
			args = append(args, file)
		}
		qemu(t, "qemu-img", args...)
		all[name] = read(t, file)
	}
	return all
}

// raws returns raw disks: accepted ones, and borderline ones.
func raws() map[string][]byte {
	boot := rawImage(1, 2<<20)
	cd := marked(make([]byte, 2<<20), map[int]string{0x8001: "CD001"})
	return map[string][]byte{
		"raw, a boot record":           boot,
		"raw, a GPT":                   marked(make([]byte, 2<<20), map[int]string{512: "EFI PART"}),
		"raw, a GPT of large sectors":  marked(make([]byte, 2<<20), map[int]string{4096: "EFI PART"}),
		"raw, one sector":              marked(make([]byte, 512), map[int]string{510: "\x55\xaa"}),
		"raw, less than a sector more": boot[:1<<20+100],
		"raw, less than a sector":      boot[:500],
		"raw, a byte":                  {1},
		"iso":                          cd,
		"iso that boots as a disk":     marked(cd, map[int]string{510: "\x55\xaa"}),
		"luks": marked(boot, map[int]string{0: "LUKS\xba\xbe\x00\x01aes", 40: "xts-plain64",
			72: "sha256"}),
		"dmg": marked(make([]byte, 2<<20),
			map[int]string{2<<20 - 512: "koly\x00\x00\x00\x04"}),
		"nothing":    {},
		"text":       []byte("hello\n"),
		"a web page": []byte("<!doctype html>" + strings.Repeat(" ", 4096)),
		"a cloop disk": marked(boot,
			map[int]string{0: "#!/bin/sh\n#V2.0 Format\nmodprobe cloop file=$0 && mount -r -t iso9660 /dev/cloop $1\n"}),
		"a bochs disk": marked(boot,
			map[int]string{0: "Bochs Virtual HD Image\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00Redolog\x00\x00\x00\x00\x00\x00\x00\x00\x00Growing"}),
		"a description after comments":  marked(boot, map[int]string{0: "# x\n \n#\nversion=1\n"}),
		"a description as Windows does": marked(boot, map[int]string{0: "# x\r\n  \r\nversion=3\r\n"}),
	}
}

// polyglots are disks that two readers could interpret differently.
func polyglots(all map[string][]byte) map[string][]byte {
	more := map[string][]byte{}
	boot := "\x55\xaa"
	for name, b := range all {
		if len(b) >= 512 {
			more[name+", with a boot record"] = marked(b, map[int]string{510: boot})
			more[name+", as a GPT"] = marked(b, map[int]string{4096: "EFI PART"})
		}
	}
	return more
}

// vmdks have the descriptions of CVE-2022-47951 and its variants in every place.
func vmdks(t *testing.T, stream, sparse []byte) map[string][]byte {
	all := map[string][]byte{}
	text := func(lines string) []byte {
		return append([]byte("# Disk DescriptorFile\nversion=1\nCID=12345678\nparentCID=ffffffff\n"), lines...)
	}
	for what, name := range outside(t) {
		parent := `parentFileNameHint="` + name + `"`
		all["vmdk, a text whose flat extent is "+what] = text("createType=\"monolithicFlat\"\nRW 8 FLAT \"" + name +
			"\" 0\n")
		all["vmdk, a text whose parent is "+what] = text("createType=\"monolithicSparse\"\nRW 8 ZERO\n" + parent + "\n")
		all["vmdk, textAt=64, its parent "+what] = vmdkWithTwoTexts(stream, name)
		for kind, disk := range map[string][]byte{"stream": stream, "sparse": sparse} {
			b := bytes.Clone(disk)
			at := bytes.Index(b, []byte("createType"))
			copy(b[at:], append(append([]byte(parent+"\n"), b[at:20*sector]...)[:20*sector-at:20*sector-at], 0))
			all["vmdk, "+kind+", its parent "+what] = b
			all["vmdk, "+kind+", capacity 0, an extent "+what] = marked(disk, map[int]string{
				12: strings.Repeat("\x00", 8), at: "createType=\"monolithicFlat\"\nRW 8 FLAT \"" + name + "\" 0\n\x00"})
		}
	}
	for kind, disk := range map[string][]byte{"stream": stream, "sparse": sparse} {
		for _, n := range []int{1, 100, 511} {
			all[fmt.Sprintf("vmdk, %s, %d bytes more", kind, n)] = append(bytes.Clone(disk), make([]byte, n)...)
			all[fmt.Sprintf("vmdk, %s, with a footer, %d bytes more", kind, n)] = append(vmdkFooted(disk, 0),
				make([]byte, n)...)
		}
		all["vmdk, "+kind+", with a footer"] = vmdkFooted(disk, 0)
		all["vmdk, "+kind+", with a footer of 512 GiB"] = vmdkFooted(disk, 1<<30)
		b := vmdkFooted(disk, 1<<30)
		all["vmdk, "+kind+", with two footers"] = append(b, b[len(b)-3*sector:]...)
		for _, at := range []uint64{0, 2, 20, 63, 1 << 31, 1<<64 - 1} {
			moved := bytes.Clone(disk)
			binary.LittleEndian.PutUint64(moved[28:], at)
			all[fmt.Sprintf("vmdk, %s, textAt=%d", kind, at)] = moved
		}
	}
	all["vmdk, of version 3"] = append([]byte("COWD\x01\x00\x00\x00\x03\x00\x00\x00"), make([]byte, 1<<20)...)
	return all
}

// vmdkFooted sets the place of the tables at the end, and optionally another capacity.
func vmdkFooted(b []byte, capacity uint64) []byte {
	footer := make([]byte, 3*sector)
	binary.LittleEndian.PutUint64(footer, 1)
	binary.LittleEndian.PutUint32(footer[12:], 3)
	copy(footer[sector:], b[:512])
	if capacity != 0 {
		binary.LittleEndian.PutUint64(footer[sector+12:], capacity)
	}
	b = bytes.Clone(b)
	binary.LittleEndian.PutUint64(b[56:], 1<<64-1)
	return append(b, footer...)
}

// qcow2s have names and features at every place where QEMU looks for them.
func qcow2s(t *testing.T, v2, v3 []byte) map[string][]byte {
	all := map[string][]byte{}
	extension := func(b []byte, at int, kind uint32, data string) []byte {
		head := binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint32(nil, kind), uint32(len(data)))
		padded := data + strings.Repeat("\x00", -len(data)&7)
		return marked(b, map[int]string{at: string(head) + padded + strings.Repeat("\x00", 8)})
	}
	u32 := func(b []byte, at int, v uint32) []byte {
		b = bytes.Clone(b)
		binary.BigEndian.PutUint32(b[at:], v)
		return b
	}
	u64 := func(b []byte, at int, v uint64) []byte {
		b = bytes.Clone(b)
		binary.BigEndian.PutUint64(b[at:], v)
		return b
	}
	for what, name := range outside(t) {
		for _, form := range []string{"", "raw", "qcow2", "vmdk"} {
			all["qcow2, on "+what+" as "+form] = onTopOf(t, name, form)
		}
		for v, b := range map[string][]byte{"2": v2, "3": v3} {
			for _, at := range []int{72, 104, 112, 512, 1 << 12, 1<<16 - len(name)} {
				named := u32(u64(marked(b, map[int]string{at: name}), 8, uint64(at)), 16, uint32(len(name)))
				all[fmt.Sprintf("qcow2, version %s, on %s, named at %d", v, what, at)] = named
				all[fmt.Sprintf("qcow2, version %s, on %s, named at %d, of no length", v, what, at)] = u32(named, 16, 0)
			}
		}
		for bits := range uint64(4) {
			withName := extension(u64(v3, 72, bits<<1), 104, extDataFile, name)
			all[fmt.Sprintf("qcow2, data in %s, features %d", what, bits<<1)] = withName
			all[fmt.Sprintf("qcow2, data in %s, raw, features %d", what, bits<<1)] = u64(withName, 88, 2)
		}
	}
	for _, n := range []uint32{1, 2, 3, 1<<32 - 1} {
		all[fmt.Sprintf("qcow2, encrypted by method %d", n)] = u32(v3, 32, n)
		all[fmt.Sprintf("qcow2, version 2, encrypted by method %d", n)] = u32(v2, 32, n)
		header := "\x00\x00\x00\x00\x00\x01\x00\x00\x00\x00\x00\x00\x00\x00\x02\x50"
		all[fmt.Sprintf("qcow2, encrypted by method %d, with a header", n)] = extension(u32(v3, 32, n), 104, extCrypto,
			header)
	}
	for bit := range 64 {
		all[fmt.Sprintf("qcow2, feature %d", bit)] = u64(v3, 72, 1<<bit)
		all[fmt.Sprintf("qcow2, compatible feature %d", bit)] = u64(v3, 80, 1<<bit)
		all[fmt.Sprintf("qcow2, feature %d that clears itself", bit)] = u64(v3, 88, 1<<bit)
	}
	for _, n := range []uint32{0, 72, 96, 100, 103, 104, 105, 108, 111, 112, 113, 120, 128, 256, 1 << 12, 1<<16 - 8,
		1 << 16, 1<<16 + 8, 1<<32 - 8} {
		all[fmt.Sprintf("qcow2, a header of %d bytes", n)] = u32(v3, 100, n)
	}
	for _, kind := range []uint32{extBackingFormat, extDataFile, extCrypto, 0x23852875, 0x6803f857, 0x12345678} {
		for v, b := range map[string][]byte{"2": v2, "3": v3} {
			for _, data := range []string{"", "raw", "qcow2", strings.Repeat("A", 16), strings.Repeat("\x00", 24),
				strings.Repeat("\xff", 48)} {
				at := map[string]int{"2": 72, "3": 104}[v]
				all[fmt.Sprintf("qcow2, version %s, extension %#x of %q", v, kind, data)] = extension(b, at, kind, data)
			}
			endless := u32(extension(b, 112, kind, "x"), 116, 1<<31)
			all[fmt.Sprintf("qcow2, version %s, extension %#x without end", v, kind)] = endless
		}
	}
	for _, n := range []uint64{0, 1, 511, 512, 513, 1 << 20, 1<<20 + 1, 1<<46 - 512, 1 << 46, 1 << 46 >> 9, 1 << 63,
		1<<64 - 1, 1<<64 - 512} {
		all[fmt.Sprintf("qcow2, a disk of %d bytes", n)] = u64(v3, 24, n)
		all[fmt.Sprintf("qcow2, version 2, a disk of %d bytes", n)] = u64(v2, 24, n)
	}
	for _, n := range []uint32{0, 1, 2, 128, 129, 1 << 10, 1 << 16, 1 << 20, 1 << 31, 1<<32 - 1} {
		all[fmt.Sprintf("qcow2, %d clusters of counts", n)] = u32(v3, 56, n)
		all[fmt.Sprintf("qcow2, %d snapshots", n)] = u64(u32(v3, 60, n), 64, 1<<16)
		all[fmt.Sprintf("qcow2, %d L1 entries", n)] = u32(v3, 36, n)
	}
	for _, n := range []int{4, 71, 72, 96, 103, 104, 112, 512, 1000, 1 << 12, 1<<16 - 1, 1 << 16, 2 << 16, 3 << 16,
		3<<16 + 8, len(v3) - 1} {
		all[fmt.Sprintf("qcow2, cut after %d bytes", n)] = v3[:min(n, len(v3))]
		all[fmt.Sprintf("qcow2, version 2, cut after %d bytes", n)] = v2[:min(n, len(v2))]
	}
	all["qcow2, 100 bytes more"] = append(bytes.Clone(v3), make([]byte, 100)...)
	all["qcow2, ends as a VHD"] = append(bytes.Clone(v3), marked(make([]byte, 512), map[int]string{0: "conectix"})...)
	return all
}

// mutations change one word of the header at a time to a problematic value.
func mutations(all map[string][]byte) map[string][]byte {
	more := map[string][]byte{}
	for _, name := range []string{"qcow2, version 2", "qcow2, version 3", "qcow2, extended L2", "qcow2, snapshots",
		"qcow2, a bitmap", "raw, a boot record"} {
		for at := 0; at < 128; at += 4 {
			was := binary.BigEndian.Uint32(all[name][at:])
			for _, v := range []uint32{0, 1, 2, 1 << 9, 1 << 16, 1 << 31, 1<<32 - 1, was + 1, was - 1, was << 1,
				was >> 1} {
				b := bytes.Clone(all[name])
				binary.BigEndian.PutUint32(b[at:], v)
				more[fmt.Sprintf("%s, %#x at %d", name, v, at)] = b
			}
		}
	}
	return more
}

// wrapped are disks in published packings.
func wrapped(t *testing.T, all map[string][]byte) map[string][]byte {
	more := map[string][]byte{}
	with := func(content []byte, open func(io.Writer) io.WriteCloser) []byte {
		var b bytes.Buffer
		w := open(&b)
		if _, err := w.Write(content); err != nil {
			t.Fatal(err)
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		return b.Bytes()
	}
	for name, b := range all {
		gz := with(b, func(w io.Writer) io.WriteCloser { return gzip.NewWriter(w) })
		more[name+", gzip"] = gz
		more[name+", gzip twice"] = with(gz, func(w io.Writer) io.WriteCloser { return gzip.NewWriter(w) })
		more[name+", gzip, cut"] = gz[:len(gz)-9]
		more[name+", zstd"] = with(b, func(w io.Writer) io.WriteCloser {
			z, err := zstd.NewWriter(w)
			if err != nil {
				t.Fatal(err)
			}
			return z
		})
		more[name+", xz"] = packed(t, "xz", b)
		var archive bytes.Buffer
		z := zip.NewWriter(&archive)
		if w, err := z.Create("../disk.img"); err != nil {
			t.Fatal(err)
		} else if _, err := w.Write(b); err != nil {
			t.Fatal(err)
		}
		z.Close()
		more[name+", zip"] = bytes.Clone(archive.Bytes())
		archive.Reset()
		tape := tar.NewWriter(&archive)
		if err := tape.WriteHeader(&tar.Header{Name: "../disk.img", Size: int64(len(b)), Mode: 0o644}); err != nil {
			t.Fatal(err)
		}
		tape.Write(b)
		tape.Close()
		more[name+", tar"] = bytes.Clone(archive.Bytes())
		more[name+", tar, gzip"] = with(archive.Bytes(), func(w io.Writer) io.WriteCloser { return gzip.NewWriter(w) })
	}
	return more
}

// TestQEMUJudgesWhatIsTaken inspects every image of a corpus, most of them hostile, and lets QEMU read all of them:
// QEMU must agree on the accepted ones. It also reads the rejected ones, which proves that it sees what they hide.
//
// Reading the whole corpus takes minutes, so one run checks every third image, and make soak all. With the race
// detector it would take longer still, and the parallel checks share no data that could have races: a test program
// without the detector performs them, unless make soak asks for both.
func TestQEMUJudgesWhatIsTaken(t *testing.T) {
	if raceEnabled && os.Getenv("CROFT_SOAK") == "" {
		cmd := exec.CommandContext(t.Context(), "go", "test", "-race=false", "-vet=off", "-count=1", "-timeout=25m",
			"-v", "-run=^"+t.Name()+"$", ".")
		out, err := cmd.CombinedOutput()
		t.Logf("%s", out)
		if err != nil || !bytes.Contains(out, []byte("--- PASS: "+t.Name())) {
			t.Errorf("without the race detector: %v", err)
		}
		return
	}
	plain := formats(t)
	maps.Copy(plain, raws())
	corpus := maps.Clone(plain)
	for _, more := range []map[string][]byte{
		polyglots(plain), mutations(plain), qcow2s(t, plain["qcow2, version 2"], plain["qcow2, version 3"]),
		vmdks(t, plain["vmdk, streamOptimized"], plain["vmdk, monolithicSparse"]), wrapped(t, plain),
	} {
		maps.Copy(corpus, more)
	}
	whole := slices.Sorted(maps.Keys(corpus))
	names := sample.OneIn(t, 8, whole)
	judge := openAnswers(t)
	defer judge.keep(t)
	var tally struct{ taken, refused, leading atomic.Int64 }
	batches := make(chan []string)
	var work sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		c, file := newCache(t), filepath.Join(t.TempDir(), "disk")
		work.Go(func() {
			for batch := range batches {
				var questions []question
				all := map[string]taken{}
				for _, name := range batch {
					switch k, err := take(c, file, corpus[name]); {
					case err == nil:
						all[name] = k
						questions = append(questions, k.questions()...)
					case croft.KindOf(err) != croft.Invalid:
						t.Errorf("%s: kind %q: %v", name, croft.KindOf(err), err)
					default:
						questions = append(questions, question{"", corpus[name]})
					}
				}
				readings, err := judge.ask(questions...)
				if err != nil {
					t.Error(err)
					continue
				}
				for _, name := range batch {
					k, ok := all[name]
					if !ok {
						tally.refused.Add(1)
						if len(readings[0].Leads) > 0 {
							tally.leading.Add(1)
						}
						readings = readings[1:]
						continue
					}
					tally.taken.Add(1)
					if !readings[0].Opened {
						t.Errorf("%s: taken as %+v, and QEMU does not open it: %s", name, k.Info, readings[0].Words)
					}
					n := len(k.questions())
					if problem := k.problem(readings[:n]); problem != "" {
						t.Errorf("%s: %s", name, problem)
					}
					readings = readings[n:]
				}
			}
		})
	}
	for batch := range slices.Chunk(names, 50) {
		batches <- batch
	}
	close(batches)
	work.Wait()
	t.Logf("%d images: %d taken, %d refused, of which QEMU finds other files in %d",
		len(names), tally.taken.Load(), tally.refused.Load(), tally.leading.Load())
	if least := int64(200 * len(names) / len(whole)); tally.leading.Load() < least || tally.taken.Load() < least {
		t.Error("the corpus has lost its teeth")
	}
}

// take fetches an image from a file, which may be packed, and forgets it.
func take(c *Cache, file string, content []byte) (taken, error) {
	if _, isPacked := format.PackingOf(content); !isPacked {
		info, err := inspectBytes(content)
		return taken{info, content}, err
	}
	if err := os.WriteFile(file, content, 0o600); err != nil {
		return taken{}, err
	}
	img, err := c.Fetch(context.Background(), file, nil)
	if err != nil {
		return taken{}, err
	}
	content, err = os.ReadFile(img.Path)
	info := format.Info{Format: img.Format, VirtualSize: img.VirtualSize}
	return taken{info, content}, errors.Join(err, os.Remove(img.Path))
}
