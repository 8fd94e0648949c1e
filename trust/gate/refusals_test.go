package gate_test

import (
	"errors"
	"math"
	"net/http"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"croft"
	"croft/compute"
	"croft/internal/plain"
	"croft/trust/gate"
)

func TestAHostSharesNothingWithOthers(t *testing.T) {
	c, id := newCloud(t), croft.NewHostID()
	err := c.front.Client(t, id).EnsureProvider(t.Context(),
		croft.Provider{ID: id, Name: "h", Traits: []croft.Trait{"MISC_SHARES_VIA_AGGREGATE"}})
	if !errors.Is(err, gate.ErrRefused) {
		t.Errorf("got %v, want a refusal", err)
	}
}

func TestAHostOffersWhatAHostCanHave(t *testing.T) {
	c, id := newCloud(t), croft.NewHostID()
	agent := c.front.Client(t, id)
	for _, i := range []croft.Inventory{{Total: math.MaxInt32, AllocationRatio: 3e38}, {Total: 1, AllocationRatio: -1},
		{Total: 1 << 40, AllocationRatio: 1}, {Total: -1, AllocationRatio: 1}, {Total: 1, Reserved: 2}} {
		err := agent.EnsureProvider(t.Context(), croft.Provider{ID: id, Name: "h",
			Inventories: map[croft.ResourceClass]croft.Inventory{croft.VCPU: i}})
		if croft.KindOf(err) != croft.Invalid {
			t.Errorf("got %v of %+v, want that it is refused", err, i)
		}
	}
}

func TestWhatHostsSayIsCleaned(t *testing.T) {
	for _, c := range []struct{ name, text, want string }{
		{"a text stays as it is", "näme, of 3 \"words\"", "näme, of 3 \"words\""},
		{"what steers a terminal is taken out", "\x1b[2Jgone\r\nnew line\u009b", " [2Jgone  new line "},
		{"what turns the direction of writing is taken out", "a\u202eb\u200b", "ab"},
		{"bytes that are no text are marked", "a\xffb", "a\uFFFDb"},
		{"a long text is cut", gate.Longest + "more", gate.Longest},
		{"a long text is cut within no letter", gate.Longest[1:] + "ä", gate.Longest[1:] + "\uFFFD"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := gate.Clean(c.text); got != c.want {
				t.Errorf("got %.200q, want %.200q", got, c.want)
			}
		})
	}
}

func TestAHostsRecordIsCleaned(t *testing.T) {
	c, id := newCloud(t), croft.NewHostID()
	agent := c.front.Client(t, id)
	h := croft.Host{ID: id, Name: "a\x1b[31mb", Problems: make([]string, 1000), API: "https://192.0.2.1:8779",
		Arch:     []croft.Arch{"riscv64", croft.ArchAArch64, "z80", croft.ArchAArch64},
		Findings: slices.Repeat([]croft.Finding{{Level: "dire", Check: "a\x1bb", Found: "c\nd", Do: "e\u202e"}}, 1000)}
	if err := agent.PutHost(t.Context(), h); err != nil {
		t.Fatal(err)
	}
	hosts, err := c.Registry.Hosts(t.Context(), id)
	if err != nil || strings.ContainsRune(hosts[id].Name, '\x1b') || len(hosts[id].Problems) > 64 {
		t.Errorf("got %+v, %v", hosts[id], err)
	}
	if got := hosts[id].Arch; !slices.Equal(got, []croft.Arch{croft.ArchAArch64}) {
		t.Errorf("it is said to run %v", got)
	}
	if got, want := hosts[id].Findings, (croft.Finding{Level: croft.FindingWarn, Check: "a b", Found: "c d",
		Do: "e"}); len(got) != croft.MaxFindings || got[0] != want {
		t.Errorf("it has %d findings, such as %+v", len(got), got[0])
	}
	h.Arch = []croft.Arch{"riscv64"}
	if err := agent.PutHost(t.Context(), h); croft.KindOf(err) != croft.Invalid { // or it would get x86_64 machines
		t.Errorf("got %v of an unknown architecture", err)
	}
	h.Arch = nil
	for _, h.API = range []string{"file:///etc/shadow", "http://192.0.2.1:8779", "https://user:password@192.0.2.1",
		"https:///"} {
		if err := agent.PutHost(t.Context(), h); croft.KindOf(err) != croft.Invalid {
			t.Errorf("got %v of %s, want that the address is refused", err, h.API)
		}
	}
}

const hostileText = "\x1b]0;pwned\x07\nFAKE\u202e\u009b"

// hostileValue sets every text in a value to one that controls a terminal and is too long. Kinds in which a text could
// be missed fail the test.
func hostileValue(t *testing.T, v reflect.Value) {
	t.Helper()
	switch v.Type() {
	case reflect.TypeFor[netip.Addr]():
		v.Set(reflect.ValueOf(netip.MustParseAddr("fe80::1").WithZone(hostileText)))
		return
	case reflect.TypeFor[time.Time]():
		return
	}
	switch v.Kind() {
	case reflect.String:
		v.SetString(strings.Repeat(hostileText, 1000))
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		hostileValue(t, v.Elem())
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 2, 2))
		hostileValue(t, v.Index(1))
	case reflect.Map:
		key, value := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
		hostileValue(t, key)
		hostileValue(t, value)
		v.Set(reflect.MakeMap(v.Type()))
		v.SetMapIndex(key, value)
	case reflect.Struct:
		for i := range v.NumField() {
			if field := v.Type().Field(i); field.IsExported() {
				hostileValue(t, v.Field(i))
			} else {
				t.Errorf("%s.%s cannot be cleaned: it is not exported", v.Type(), field.Name)
			}
		}
	case reflect.Bool, reflect.Int, reflect.Int64, reflect.Float64, reflect.Uint8, reflect.Uint16:
	default:
		t.Errorf("the gate does not clean values of type %s", v.Type())
	}
}

// unclean reports the texts in a value that control a terminal or are too long.
func unclean(t *testing.T, path string, v reflect.Value) {
	t.Helper()
	bad := func(text string) bool {
		return len(text) > len(gate.Longest) || strings.ContainsFunc(text, plain.Steers)
	}
	switch {
	case v.Type() == reflect.TypeFor[netip.Addr]():
		if text := v.Interface().(netip.Addr).String(); bad(text) {
			t.Errorf("%s is left: %.80q", path, text)
		}
	case v.Kind() == reflect.String:
		if bad(v.String()) {
			t.Errorf("%s is left: %.80q", path, v.String())
		}
	case v.Kind() == reflect.Pointer && !v.IsNil():
		unclean(t, path, v.Elem())
	case v.Kind() == reflect.Slice:
		for i := range v.Len() {
			unclean(t, path+"[]", v.Index(i))
		}
	case v.Kind() == reflect.Map:
		for entry := v.MapRange(); entry.Next(); {
			unclean(t, path+" key", entry.Key())
			unclean(t, path+" value", entry.Value())
		}
	case v.Kind() == reflect.Struct && v.Type() != reflect.TypeFor[time.Time]():
		for i := range v.NumField() {
			unclean(t, path+"."+v.Type().Field(i).Name, v.Field(i))
		}
	}
}

func TestEveryTextThatAHostCanSendIsCleaned(t *testing.T) {
	questions := map[reflect.Type]bool{}
	for _, port := range []reflect.Type{reflect.TypeFor[compute.Orders](), reflect.TypeFor[compute.Registry](),
		reflect.TypeFor[compute.Records](), reflect.TypeFor[compute.Inventory]()} {
		for method := range port.Methods() {
			for in := range method.Type.Ins() {
				if in.Kind() != reflect.Interface && in.Kind() != reflect.Func && in.Kind() != reflect.Chan {
					questions[in] = true
				}
			}
		}
	}
	if !questions[reflect.TypeFor[croft.Observation]()] || !questions[reflect.TypeFor[croft.Agent]()] {
		t.Fatalf("got only %v", questions)
	}
	for question := range questions {
		sent := reflect.New(question)
		hostileValue(t, sent.Elem())
		gate.CleanTexts(sent.Interface())
		unclean(t, question.String(), sent.Elem())
	}
}

func TestAnObservationIsCleaned(t *testing.T) {
	h := newHostile(t, 1)
	id := h.on(h.host, croft.NewInstanceID()).ID
	o := croft.Observation{Host: h.host, Instance: id, State: croft.StateRunning, Error: hostileText,
		Addresses: []netip.Addr{netip.MustParseAddr("fe80::1").WithZone(hostileText)},
		Events:    []croft.Event{{Name: "image"}}}
	if status, said := h.post("Observe", o); status != http.StatusOK {
		t.Fatalf("answered %d %s", status, said)
	}
	stored, err := h.Orders.Observed(t.Context(), h.host, id)
	if err != nil || len(stored.Addresses) != 1 || stored.Addresses[0].Zone() != "" {
		t.Errorf("got %+v, %v", stored, err)
	}
	unclean(t, "the stored observation", reflect.ValueOf(stored))
	for _, state := range croft.ObservedStates {
		o.State = state
		if status, said := h.post("Observe", o); status != http.StatusOK {
			t.Errorf("%s is answered %d %s", state, status, said)
		}
	}
	for _, change := range []func(*croft.Observation){
		func(o *croft.Observation) { o.Addresses = make([]netip.Addr, 100) },
		func(o *croft.Observation) { o.Events = make([]croft.Event, 100) },
		func(o *croft.Observation) { o.Events = []croft.Event{{Name: croft.EventName(gate.Longest)}} },
		func(o *croft.Observation) { o.State = "made up" },
	} {
		large := o
		change(&large)
		if status, said := h.post("Observe", large); status != http.StatusBadRequest {
			t.Errorf("%.300v is answered %d %s", large, status, said)
		}
	}
}
