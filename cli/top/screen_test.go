package top

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"croft"
	"croft/compute"
)

// manyHosts is a cloud of n hosts with five instances each.
func manyHosts(n int) View {
	v := View{At: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)}
	for i := range n {
		busy := float64(i%7) / 2
		h := host{ID: croft.NewHostID(), Name: fmt.Sprintf("host%04d", i), State: "ready", Instances: 5, CPU: &busy,
			Offered: croft.Resources{croft.VCPU: 16}, Claimed: croft.Resources{croft.VCPU: int64(i % 16)}}
		v.Hosts = append(v.Hosts, h)
		for j := range 5 {
			v.Instances = append(v.Instances, instance{ID: croft.NewInstanceID(), Name: fmt.Sprintf("i%04d-%d", i, j),
				State: "running", Host: h.Name, hostID: h.ID})
		}
	}
	return v
}

func TestTheScreenFillsATerminalOfEverySize(t *testing.T) {
	for _, size := range [][2]int{{80, 24}, {40, 12}, {200, 60}, {20, 5}, {1, 1}} {
		for _, v := range []View{{}, manyHosts(1), manyHosts(100)} {
			for focus := range 2 {
				screen := screen{focus: focus, color: true}
				got, _ := screen.draw(v, size[0], size[1])
				if len(got) > size[1] {
					t.Errorf("%v, %d hosts: %d lines", size, len(v.Hosts), len(got))
				}
				for _, line := range got {
					if n := utf8.RuneCountInString(clip(strings.NewReplacer("\x1b[1m", "", "\x1b[0m", "", "\x1b[32m",
						"", "\x1b[31m",
						"", "\x1b[33m", "").Replace(line), 1000)); n > size[0] {
						t.Errorf("%v: a line of %d: %q", size, n, line)
					}
				}
			}
		}
	}
}

func TestTheListInFocusHasMostOfTheScreen(t *testing.T) {
	screen := screen{focus: 1}
	got, shown := screen.draw(manyHosts(100), 80, 24)
	count := func(part string) (n int) {
		for _, line := range got {
			if strings.Contains(line, part) {
				n++
			}
		}
		return n
	}
	hosts, instances := count("ready  5"), count("running")-1 // one of them is in the summary
	if hosts != 6 || instances != 12 {
		t.Errorf("there are %d hosts and %d instances:\n%s", hosts, instances, strings.Join(got, "\n"))
	}
	if len(shown) != hosts+instances {
		t.Errorf("the guests of %d hosts are asked about, want those of the rows", len(shown))
	}
	screen.key("\t")
	if screen.draw(manyHosts(2), 80, 24); screen.lists[0].fits < 2 || screen.lists[1].fits < 10 {
		t.Errorf("room that one list does not need is not given to the other: %+v", screen.lists)
	}
}

func TestKeysSortAndScroll(t *testing.T) {
	v, screen := manyHosts(30), screen{}
	top := func() string {
		got, _ := screen.draw(v, 80, 24)
		return strings.Fields(got[3])[0]
	}
	for _, step := range []struct{ keys, first string }{
		{"", "host0000"},
		{"r", "host0029"},
		{"r", "host0000"},
		{"j j j k", "host0002"},
		{"\x1b[6~", "host0014"},
		{"\x1b[F", "host0018"},
		{"j", "host0018"},
		{"\x1b[5~ \x1b[5~", "host0000"},
		{"s s s", "host0006"}, // by CPU, busiest first
		{"s", "host0015"},     // by VCPU, fullest first
		{"r", "host0016"},     // emptiest first; of equal hosts the last by name
	} {
		top()
		for key := range strings.FieldsSeq(step.keys) {
			if screen.key(key) {
				t.Fatalf("%q quits", key)
			}
		}
		if got := top(); got != step.first {
			t.Errorf("after %q the first is %s, want %s", step.keys, got, step.first)
		}
	}
	for _, key := range []string{"q", "\x03"} {
		if !screen.key(key) {
			t.Errorf("%q does not quit", key)
		}
	}
}

func TestKeysAreToldApart(t *testing.T) {
	var got []string
	for typed := "s\x1b[A\x1b[5~\x1bOBä\x1b"; typed != ""; {
		var key string
		key, typed = cutKey(typed)
		got = append(got, key)
	}
	if want := []string{"s", "\x1b[A", "\x1b[5~", "\x1bOB", "ä", "\x1b"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestHowBusyAGuestIsTakesTwoReadings(t *testing.T) {
	at := time.Now()
	first := sample{}.next(at, compute.Usage{CPU: 10 * time.Second})
	second := first.next(at.Add(2*time.Second), compute.Usage{CPU: 13 * time.Second})
	restarted := second.next(at.Add(4*time.Second), compute.Usage{CPU: time.Second})
	busy := sample{memory: 5}.next(at, compute.Usage{Busy: true})
	if busy.memory != 5 {
		t.Errorf("while its monitor is busy, its memory is %d", busy.memory)
	}
	if first.rate != nil || second.rate == nil || *second.rate != 1.5 || restarted.rate != nil {
		t.Errorf("the rates are %v, %v and %v", first.rate, second.rate, restarted.rate)
	}
}

// BenchmarkDrawAThousandHosts measures a drawing, which should take a fraction of the time that a user would notice.
func BenchmarkDrawAThousandHosts(b *testing.B) {
	v, screen := manyHosts(1000), screen{color: true}
	for b.Loop() {
		screen.draw(v, 160, 50)
	}
}
