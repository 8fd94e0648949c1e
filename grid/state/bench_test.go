package state

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"testing"
)

// large creates a cluster of 1,000 nodes and 9,000 jobs with one slot each: 10,000 files and 9,000 links.
func large(b *testing.B) string {
	b.Helper()
	dir := b.TempDir()
	write := func(name, text string) {
		file := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			b.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			b.Fatal(err)
		}
	}
	write("cluster.yaml", "id: \"0123456789abcdef0123456789abcdef\"\nruntime: podman\n")
	write("nodes/_.yaml", "id: -1\nuser: root\nfacts: [linux]\n")
	for i := range 1000 {
		rack := i / 20
		if i%20 == 0 {
			write(fmt.Sprintf("nodes/s%d/r%d/_.yaml", rack/10, rack), fmt.Sprintf("id: %d\n", -100-rack))
		}
		if i%200 == 0 {
			write(fmt.Sprintf("nodes/s%d/_.yaml", rack/10), fmt.Sprintf("id: %d\n", -2-rack/10))
		}
		write(fmt.Sprintf("nodes/s%d/r%d/n%d.yaml", rack/10, rack, i),
			fmt.Sprintf("id: %d\naddress: 10.0.%d.%d\nweight: 1.5\ncapacity: {cpu: 16, memory: 64Gi}\nfacts+: [ssd]\n",
				i, i/250, i%250))
	}
	write("jobs/_.yaml", "runtime: podman\nenv: {ZONE: eu}\n")
	for i := range 9000 {
		name := fmt.Sprintf("g%d/j%d", i/100, i)
		write("jobs/"+name+".yaml", fmt.Sprintf("image: {registry: example.org/app:%d}\n"+
			"command: [serve, --slot, '${slot}']\n"+
			"env: {NODE: '${node.name}', PORT: '80'}\nports: ['%d:80']\nuses: {cpu: 0.5, memory: 512Mi}\nreplicas: 1\n"+
			"policy: spread(rack)\nready: {url: 'http://${ip}:80/'}\n", i, 1000+i))
		link := filepath.Join(dir, "alloc", name, "0")
		if err := os.MkdirAll(filepath.Dir(link), 0o755); err != nil {
			b.Fatal(err)
		}
		n := i % 1000
		if err := os.Symlink(fmt.Sprintf("../../../nodes/s%d/r%d/n%d.yaml", n/200, n/20, n), link); err != nil {
			b.Fatal(err)
		}
	}
	return dir
}

// BenchmarkLoad loads 10,000 files and 9,000 links, which is the work of lint, and reports the memory of the process.
func BenchmarkLoad(b *testing.B) {
	dir := large(b)
	for b.Loop() {
		s, err := Load(b.Context(), dir)
		if err != nil {
			b.Fatal(err)
		}
		if len(s.Jobs) != 9000 || len(s.Leaves) != 1000 || len(s.Warnings) != 0 {
			b.Fatalf("%d jobs, %d nodes, %v", len(s.Jobs), len(s.Leaves), s.Warnings)
		}
	}
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	b.ReportMetric(float64(m.Sys)/(1<<20), "MiB-of-process")
}

// BenchmarkNodes builds the units of 9,000 slots.
func BenchmarkNodes(b *testing.B) {
	s, err := Load(b.Context(), large(b))
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		if _, err := s.Nodes(b.Context(), nil); err != nil {
			b.Fatal(err)
		}
	}
}
