package policy

import (
	"slices"
	"strings"
	"testing"

	"croft/crush"
)

// TestAnOrderIsWhatIsGivenOnceTheFirstAreOut compares each position of an order with the result of Place for one
// replica when the previous devices are refused, and when they are out, pass by pass.
func TestAnOrderIsWhatIsGivenOnceTheFirstAreOut(t *testing.T) {
	m, err := crush.ReadText(strings.NewReader(sites))
	if err != nil {
		t.Fatal(err)
	}
	program, err := crush.Compile(m)
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{"take 1", "select 1 host; take 1", "select 2 site; select 1 host; take 2",
		"use there; take 1; emit; use here; select 1 host; take 1", "use here; take 1"} {
		p, err := Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		c, err := Compile(p, m)
		if err != nil {
			t.Fatal(err)
		}
		for x := range uint32(200) {
			var before []crush.ID
			out := slices.Repeat(crush.Reweights{crush.One}, program.Devices())
			c.Order(program.NewMapper(), x, nil, func(id crush.ID, pass int) bool {
				input := x
				if pass > 0 {
					input = crush.Hash2(x, uint32(pass))
				}
				refused := c.Place(program.NewMapper(), Request{X: input, Want: 1,
					Refuse: func(id crush.ID) bool { return slices.Contains(before, id) }}, nil)
				outs := c.Place(program.NewMapper(), Request{X: input, Want: 1, Reweights: out, Ceph: true}, nil)
				if len(refused) != 1 || refused[0] != id || len(outs) != 1 || outs[0] != id {
					t.Fatalf("%s, input %d: %d comes after %v; Place gives %v, and with those out %v", text, x, id,
						before, refused, outs)
				}
				if slices.Contains(before, id) {
					t.Fatalf("%s, input %d: %d comes twice", text, x, id)
				}
				before = append(before, id)
				out[id] = 0
				return false
			})
			least, most := 6, 6
			switch text {
			case "use here; take 1":
				least, most = 4, 4
			case "select 2 site; select 1 host; take 2": // the host is chosen without checking its devices
				least = 3
			}
			if len(before) < least || len(before) > most {
				t.Errorf("%s, input %d: %d devices are given, want %d to %d", text, x, len(before), least, most)
			}
		}
	}
}

func TestAnOrderEndsWhereADeviceIsTaken(t *testing.T) {
	m, err := crush.ReadText(strings.NewReader(sites))
	if err != nil {
		t.Fatal(err)
	}
	program, _ := crush.Compile(m)
	p, _ := Parse("select 2 site; take 1; emit; take 1")
	c, err := Compile(p, m)
	if err != nil {
		t.Fatal(err)
	}
	for taken := range 6 {
		n := 0
		c.Order(program.NewMapper(), 42, nil, func(crush.ID, int) bool {
			n++
			return n == taken+1
		})
		if n != taken+1 {
			t.Errorf("%d devices are offered, want %d", n, taken+1)
		}
	}
}

func TestPoliciesForOtherReplicasOfferNothing(t *testing.T) {
	m, err := crush.ReadText(strings.NewReader(sites))
	if err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string]bool{"take -1": false, "select -1 host; take 1": false, "take 0": true,
		"use here; take -1; emit; use there; take 1": true} {
		p, err := Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		c, err := Compile(p, m)
		if err != nil {
			t.Fatal(err)
		}
		if c.Offers() != want || want != (len(c.Begins()) > 0) {
			t.Errorf("%s: offers %v, begins at %v", text, c.Offers(), c.Begins())
		}
	}
}
