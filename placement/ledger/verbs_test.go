package ledger

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"croft"
)

// spec is an inventory that can be claimed in units of 2, 4 or 6.
func spec(class string, total int64) InventorySpec {
	return InventorySpec{class, Inventory{Total: total, MinUnit: 2, MaxUnit: 6, StepSize: 2, Ratio: 1}}
}

func has(id string, specs ...InventorySpec) func(*Tx) error {
	return func(t *Tx) error {
		_, err := t.SetInventories(id, t.providers.look(id).Generation, true, specs)
		return err
	}
}

// claim claims for consumer x at a generation; -1: a new consumer.
func claim(generation int64, demands ...Demand) func(*Tx) error {
	c := ClaimRequest{Consumer: "x", Project: "p", User: "u", Type: "T", Demands: demands}
	if generation >= 0 {
		c.Generation = &generation
	}
	return claims(c)
}

func claims(all ...ClaimRequest) func(*Tx) error {
	rules := ClaimRules{Generations: true, Types: true, Refuse: func(s string) error { return invalid("%s", s) }}
	return func(t *Tx) error { return t.Claim(rules, all...) }
}

// kept claims as clients do that change claims also on providers that are smaller than their use.
func kept(all ...ClaimRequest) func(*Tx) error {
	return func(t *Tx) error { return t.Claim(ClaimRules{Increases: true}, all...) }
}

func demand(provider, class string, n int64) Demand { return Demand{provider, NamedAmount{class, n}} }

func update(id string, change ProviderChange) func(*Tx) error {
	return func(t *Tx) error { _, _, err := t.UpdateProvider(id, change); return err }
}

func aggregate(id string, generation int64, aggregates ...string) func(*Tx) error {
	return func(t *Tx) error { _, err := t.SetAggregates(id, &generation, aggregates); return err }
}

func trait(id string, generation int64, names ...string) func(*Tx) error {
	return func(t *Tx) error { _, err := t.SetTraits(id, generation, names); return err }
}

func bring(id string, want ProviderSpec) func(*Tx) error {
	return func(t *Tx) error { _, err := t.BringProvider(id, want); return err }
}

func reshape(provider string, generation int64, specs []InventorySpec, all ...ClaimRequest) func(*Tx) error {
	return func(t *Tx) error {
		return t.Reshape(ClaimRules{Generations: true}, []Reshaped{{provider, generation, specs}}, all)
	}
}

// summary formats the whole state, in the order of creation.
func (m *replay) summary() string {
	var out []string
	for _, p := range m.all {
		text := fmt.Sprintf("%s(%s)@%d", p.UUID, p.Name, p.Generation)
		if p.up != nil {
			text += " in " + p.up.UUID
		}
		for _, i := range p.Inventories {
			text += fmt.Sprintf(" %s:%d/%d", m.ClassName(i.Class), p.Used(i.Class), i.Total)
		}
		for _, t := range p.Traits {
			text += " +" + m.TraitName(t)
		}
		for _, a := range p.Aggregates {
			text += " @" + a
		}
		out = append(out, text)
	}
	var consumers []string
	for _, c := range m.consumers {
		consumers = append(consumers, fmt.Sprintf("%s@%d %s", c.UUID, c.Generation, c.Type))
	}
	slices.Sort(consumers)
	for _, s := range []*Symbols{m.classes, m.traits} {
		for x := range s.All() {
			if !x.Standard {
				out = append(out, fmt.Sprintf("%s*%d", x.Name, x.Users))
			}
		}
	}
	return strings.Join(append(out, consumers...), ", ")
}

func TestVerbs(t *testing.T) {
	type verbs = []func(*Tx) error
	one, longest := int64(1), "CUSTOM_"+strings.Repeat("X", 248)
	host := verbs{create("a", ""), has("a", spec("VCPU", 8))}
	tree := verbs{create("a", ""), create("b", "a"), create("c", "")}
	held := append(slices.Clip(host), claim(-1, demand("a", "VCPU", 4)))
	custom := verbs{createClass("CUSTOM_X"), create("a", ""), has("a", spec("CUSTOM_X", 8), spec("VCPU", 8)),
		claim(-1, demand("a", "CUSTOM_X", 4), demand("a", "VCPU", 2))}
	traits := verbs{create("a", ""), func(t *Tx) error { _, _, err := t.EnsureTrait("CUSTOM_T"); return err },
		trait("a", 0, "CUSTOM_T", "HW_CPU_X86_AVX")}
	bound := ProviderSpec{Name: "n", Inventories: []InventorySpec{spec("VCPU", 8), spec("CUSTOM_X", 2)},
		Traits: []string{"CUSTOM_T", "NO_SUCH_STANDARD"}, Aggregates: []string{"g2", "g1"}}
	for name, test := range map[string]struct {
		before verbs
		verb   func(*Tx) error
		want   string // the summary, or the code or kind of a refusal
	}{
		"a provider needs a name": {
			nil, func(t *Tx) error { _, _, err := t.CreateProvider("a", "", ""); return err }, "invalid",
		},
		"a provider is not its own parent":      {nil, create("a", "a"), "invalid"},
		"a parent exists":                       {nil, create("a", "b"), "invalid"},
		"a UUID is taken once":                  {tree, create("a", ""), CodeDuplicateName},
		"a parent is not deleted":               {tree, remove("a"), CodeProviderIsParent},
		"a provider with claims is not deleted": {held, remove("a"), CodeProviderInUse},
		"a deleted provider frees its name": {
			append(slices.Clip(tree), remove("c")), update("b", ProviderChange{Name: "name of c"}),
			"a(name of a)@0, b(name of c)@0 in a",
		},
		"a provider that is not there is not deleted": {nil, remove("a"), "not found"},
		"a provider that is not there is not updated": {
			nil, update("a", ProviderChange{Name: "n"}), "not found",
		},
		"a name of another provider is not taken": {
			tree, update("b", ProviderChange{Name: "name of c"}), CodeDuplicateName,
		},
		"a provider keeps its name": {
			tree, update("b", ProviderChange{Name: "name of b"}),
			"a(name of a)@0, b(name of b)@0 in a, c(name of c)@0",
		},
		"a root is moved": {
			tree, update("c", ProviderChange{Name: "n", Reparent: true, Parent: "b"}),
			"a(name of a)@0, b(name of b)@0 in a, c(n)@0 in b",
		},
		"a child stays where it is": {
			tree, update("b", ProviderChange{Name: "n", Reparent: true, Parent: "a"}),
			"a(name of a)@0, b(n)@0 in a, c(name of c)@0",
		},
		"a root stays a root": {
			tree, update("c", ProviderChange{Name: "n", Reparent: true}),
			"a(name of a)@0, b(name of b)@0 in a, c(n)@0",
		},
		"a child is not moved": {
			tree, update("b", ProviderChange{Name: "n", Reparent: true, Parent: "c"}), "invalid",
		},
		"a child does not become a root": {
			tree, update("b", ProviderChange{Name: "n", Reparent: true}), "invalid",
		},
		"a child is moved freely": {
			tree, update("b", ProviderChange{Name: "n", Reparent: true, Parent: "c", Freely: true}),
			"a(name of a)@0, b(n)@0 in c, c(name of c)@0",
		},
		"a child becomes a root freely": {
			tree, update("b", ProviderChange{Name: "n", Reparent: true, Freely: true}),
			"a(name of a)@0, b(n)@0, c(name of c)@0",
		},
		"a tree has no loop": {
			tree, update("a", ProviderChange{Name: "n", Reparent: true, Parent: "b"}), "invalid",
		},
		"aggregates count up the generation": {
			tree[:1], aggregate("a", 0, "g"), "a(name of a)@1 @g",
		},
		"aggregates compare the generation": {
			tree[:1], aggregate("a", 1, "g"), CodeConcurrentUpdate,
		},
		"traits count up the generation": {
			traits, trait("a", 1, "CUSTOM_T"), "a(name of a)@2 +CUSTOM_T, CUSTOM_T*1",
		},
		"the same traits change nothing": {
			traits, trait("a", 1, "HW_CPU_X86_AVX", "CUSTOM_T"),
			"a(name of a)@1 +HW_CPU_X86_AVX +CUSTOM_T, CUSTOM_T*1",
		},
		"traits compare the generation": {traits, trait("a", 0), CodeConcurrentUpdate},
		"traits exist":                  {traits, trait("a", 1, "CUSTOM_U", "CUSTOM_U"), "invalid"},
		"a trait in use is not deleted": {
			traits, func(t *Tx) error { return t.DeleteTrait("CUSTOM_T") }, "conflict",
		},
		"a trait that nobody has is deleted": {
			append(slices.Clip(traits), func(t *Tx) error { return t.DeleteTraits("a") }),
			func(t *Tx) error { return t.DeleteTrait("CUSTOM_T") },
			"a(name of a)@2",
		},
		"a standard trait is not deleted": {
			traits, func(t *Tx) error { return t.DeleteTrait("HW_CPU_X86_AVX") }, "invalid",
		},
		"inventories compare the generation": {
			host, func(t *Tx) error { _, err := t.SetInventories("a", 0, true, nil); return err },
			CodeConcurrentUpdate,
		},
		"inventories in use are kept": {held, has("a"), CodeInventoryInUse},
		"inventories are replaced": {
			host, has("a", spec("DISK_GB", 8)), "a(name of a)@2 DISK_GB:0/8",
		},
		"all inventories in use are not deleted": {
			held, func(t *Tx) error { return t.DeleteInventories("a") }, CodeInventoryInUse,
		},
		"all inventories are deleted": {
			host, func(t *Tx) error { return t.DeleteInventories("a") }, "a(name of a)@2",
		},
		"an inventory is added": {
			host, func(t *Tx) error { _, err := t.CreateInventory("a", spec("DISK_GB", 4)); return err },
			"a(name of a)@2 VCPU:0/8 DISK_GB:0/4",
		},
		"an inventory is added once": {
			host, func(t *Tx) error { _, err := t.CreateInventory("a", spec("VCPU", 4)); return err },
			CodeConcurrentUpdate,
		},
		"an inventory is of a class": {
			host, func(t *Tx) error { _, err := t.CreateInventory("a", spec("CUSTOM_X", 4)); return err },
			"invalid",
		},
		"an inventory is changed": {
			held, func(t *Tx) error { _, err := t.UpdateInventory("a", 2, true, spec("VCPU", 6)); return err },
			"a(name of a)@3 VCPU:4/6, x@1 T",
		},
		"an inventory that is changed exists": {
			host, func(t *Tx) error { _, err := t.UpdateInventory("a", 1, true, spec("DISK_GB", 6)); return err },
			"invalid",
		},
		"an inventory that is changed has a class": {
			host, func(t *Tx) error { _, err := t.UpdateInventory("a", 1, true, spec("CUSTOM_X", 6)); return err },
			"not found",
		},
		"a change compares the generation": {
			host, func(t *Tx) error { _, err := t.UpdateInventory("a", 0, true, spec("VCPU", 6)); return err },
			CodeConcurrentUpdate,
		},
		"an inventory has capacity": {
			host, func(t *Tx) error { _, err := t.UpdateInventory("a", 1, true, spec("VCPU", -1)); return err },
			"invalid",
		},
		"all of an inventory may be reserved": {
			host, func(t *Tx) error { _, err := t.UpdateInventory("a", 1, true, spec("VCPU", 0)); return err },
			"a(name of a)@2 VCPU:0/0",
		},
		"all of it may not be reserved before": {
			host, func(t *Tx) error { _, err := t.UpdateInventory("a", 1, false, spec("VCPU", 0)); return err },
			"invalid",
		},
		"an inventory in use is not deleted": {
			held, func(t *Tx) error { return t.DeleteInventory("a", "VCPU") }, CodeConcurrentUpdate,
		},
		"an inventory is deleted": {
			host, func(t *Tx) error { return t.DeleteInventory("a", "VCPU") }, "a(name of a)@2",
		},
		"an inventory that is deleted exists": {
			host, func(t *Tx) error { return t.DeleteInventory("a", "DISK_GB") }, "not found",
		},
		"a claim takes all there is": {
			host, claim(-1, demand("a", "VCPU", 6)), "a(name of a)@2 VCPU:6/8, x@1 T",
		},
		"two claims take no more than there is": {
			held, claims(ClaimRequest{Consumer: "y", Demands: []Demand{demand("a", "VCPU", 6)}}), "conflict",
		},
		"claims of one request are summed": {
			host,
			claims(ClaimRequest{Consumer: "x", Demands: []Demand{demand("a", "VCPU", 6)}},
				ClaimRequest{Consumer: "y", Demands: []Demand{demand("a", "VCPU", 4)}}),
			"conflict",
		},
		"claims of one request may take all": {
			host,
			claims(ClaimRequest{Consumer: "x", Demands: []Demand{demand("a", "VCPU", 6)}},
				ClaimRequest{Consumer: "y", Demands: []Demand{demand("a", "VCPU", 2)}}),
			"a(name of a)@2 VCPU:8/8, x@1 , y@1 ",
		},
		"a claim has the least unit":   {host, claim(-1, demand("a", "VCPU", 0)), "conflict"},
		"a claim has the largest unit": {host, claim(-1, demand("a", "VCPU", 8)), "conflict"},
		"a claim goes by steps":        {host, claim(-1, demand("a", "VCPU", 3)), "conflict"},
		"a claim is of an inventory":   {host, claim(-1, demand("a", "DISK_GB", 2)), "conflict"},
		"a claim is of a class":        {host, claim(-1, demand("a", "CUSTOM_X", 2)), "invalid"},
		"a claim is of a provider":     {host, claim(-1, demand("b", "VCPU", 2)), "invalid"},
		"a claim is replaced": {
			held, claim(1, demand("a", "VCPU", 6)), "a(name of a)@3 VCPU:6/8, x@2 T",
		},
		"a claim that is kept stays where the provider became smaller": {
			append(slices.Clip(held), has("a", spec("VCPU", 2))),
			kept(ClaimRequest{Consumer: "x", Type: "T", Demands: []Demand{demand("a", "VCPU", 4)}}),
			"a(name of a)@4 VCPU:4/2, x@2 T",
		},
		"a claim that is kept becomes smaller there": {
			append(slices.Clip(held), has("a", spec("VCPU", 3))),
			kept(ClaimRequest{Consumer: "x", Demands: []Demand{demand("a", "VCPU", 2)}}),
			"a(name of a)@4 VCPU:2/3, x@2 T",
		},
		"a claim that is kept passes to another consumer there": {
			append(slices.Clip(held), has("a", InventorySpec{"VCPU", Inventory{Total: 2, MinUnit: 2, MaxUnit: 4,
				StepSize: 2, Ratio: 1}})),
			kept(ClaimRequest{Consumer: "x"}, ClaimRequest{Consumer: "y", Demands: []Demand{demand("a", "VCPU", 4)}}),
			"a(name of a)@4 VCPU:4/2, y@1 ",
		},
		"a claim that is kept does not grow there": {
			append(slices.Clip(held), has("a", spec("VCPU", 2))),
			kept(ClaimRequest{Consumer: "x", Demands: []Demand{demand("a", "VCPU", 6)}}), "conflict",
		},
		"a claim that is kept lets no other one in there": {
			append(slices.Clip(held), has("a", spec("VCPU", 2))),
			kept(ClaimRequest{Consumer: "x", Demands: []Demand{demand("a", "VCPU", 4)}},
				ClaimRequest{Consumer: "y", Demands: []Demand{demand("a", "VCPU", 2)}}), "conflict",
		},
		"without that, nothing is claimed where the provider became smaller": {
			append(slices.Clip(held), has("a", spec("VCPU", 2))), claim(1, demand("a", "VCPU", 4)), "conflict",
		},
		"a claim compares the consumer's generation": {
			held, claim(0, demand("a", "VCPU", 6)), CodeConcurrentUpdate,
		},
		"a new consumer is not there": {
			held, claim(-1, demand("a", "VCPU", 6)), CodeConcurrentUpdate,
		},
		"a consumer that is known is there": {
			host, claim(1, demand("a", "VCPU", 6)), CodeConcurrentUpdate,
		},
		"a claim of nothing ends the consumer": {held, claim(1), "a(name of a)@3 VCPU:0/8"},
		"a claim is released":                  {held, releases("x"), "a(name of a)@2 VCPU:0/8"},
		"a claim that is released exists":      {host, releases("x"), "not found"},
		"a class is renamed everywhere": {
			custom, func(t *Tx) error { return t.RenameClass("CUSTOM_X", "CUSTOM_Y") },
			"a(name of a)@2 VCPU:2/8 CUSTOM_Y:4/8, CUSTOM_Y*1, x@1 T",
		},
		"a class is renamed to itself": {
			custom, func(t *Tx) error { return t.RenameClass("CUSTOM_X", "CUSTOM_X") },
			"a(name of a)@2 VCPU:2/8 CUSTOM_X:4/8, CUSTOM_X*1, x@1 T",
		},
		"a class is not renamed to another": {
			custom, func(t *Tx) error { return t.RenameClass("CUSTOM_X", "VCPU") }, "conflict",
		},
		"a standard class is not renamed": {
			custom, func(t *Tx) error { return t.RenameClass("VCPU", "CUSTOM_Y") }, "invalid",
		},
		"a class that is renamed exists": {
			nil, func(t *Tx) error { return t.RenameClass("CUSTOM_X", "CUSTOM_Y") }, "not found",
		},
		"a class is created once": {custom, createClass("CUSTOM_X"), "conflict"},
		"a class in use is not deleted": {
			custom, func(t *Tx) error { return t.DeleteClass("CUSTOM_X") }, "conflict",
		},
		"a class that nobody has is deleted": {
			custom[:1], func(t *Tx) error { return t.DeleteClass("CUSTOM_X") }, "",
		},
		"a standard class is not deleted": {
			custom, func(t *Tx) error { return t.DeleteClass("DISK_GB") }, "invalid",
		},
		"a provider is brought with all it needs": {
			nil, bring("a", bound), "a(n)@3 VCPU:0/8 CUSTOM_X:0/2 +CUSTOM_T @g1 @g2, CUSTOM_X*1, CUSTOM_T*1",
		},
		"a provider that is as it should be is left": {
			verbs{bring("a", bound)}, bring("a", bound),
			"a(n)@3 VCPU:0/8 CUSTOM_X:0/2 +CUSTOM_T @g1 @g2, CUSTOM_X*1, CUSTOM_T*1",
		},
		"a provider is brought to another name": {
			tree[:1], bring("a", ProviderSpec{Name: "n"}), "a(n)@0",
		},
		"a provider is not brought to a taken name": {
			tree, bring("a", ProviderSpec{Name: "name of c"}), CodeDuplicateName,
		},
		"a provider is not brought below its claims": {
			held, bring("a", ProviderSpec{Name: "n"}), CodeInventoryInUse,
		},
		"a provider is not brought to a class unknown": {
			nil, bring("a", ProviderSpec{Name: "n", Inventories: []InventorySpec{spec("NO_CLASS", 1)}}), "invalid",
		},
		"a claim is reshaped": {
			held,
			reshape("a", 2, []InventorySpec{spec("DISK_GB", 8)},
				ClaimRequest{Consumer: "x", Generation: &one, Demands: []Demand{demand("a", "DISK_GB", 6)}}),
			"a(name of a)@5 DISK_GB:6/8, x@2 T",
		},
		"what claims have is not reshaped away": {
			held, reshape("a", 2, []InventorySpec{spec("DISK_GB", 8)}), CodeInventoryInUse,
		},
		"a reshape compares the generation": {
			held, reshape("a", 1, []InventorySpec{spec("VCPU", 8)}), CodeConcurrentUpdate,
		},
		"what is reshaped exists": {held, reshape("b", 1, nil), CodeProviderNotFound},
		"a reshape takes no more than there is": {
			held,
			reshape("a", 2, []InventorySpec{spec("VCPU", 8)},
				ClaimRequest{Consumer: "y", Demands: []Demand{demand("a", "VCPU", 6)}}),
			"conflict",
		},
		"a provider is brought to another total": {
			host, bring("a", ProviderSpec{Name: "name of a", Inventories: []InventorySpec{spec("VCPU", 6)}}),
			"a(name of a)@2 VCPU:0/6",
		},
		"a provider that is brought needs a name": {nil, bring("a", ProviderSpec{}), "invalid"},
		"a new provider is not brought to a taken name": {
			tree, bring("d", ProviderSpec{Name: "name of c"}), CodeDuplicateName,
		},
		"a provider is brought to a class of the longest name": {
			nil, bring("a", ProviderSpec{Name: "n", Inventories: []InventorySpec{spec(longest, 8)}}),
			"a(n)@1 " + longest + ":0/8, " + longest + "*1",
		},
		"a provider is not brought to a class of a longer one": {
			nil, bring("a", ProviderSpec{Name: "n", Inventories: []InventorySpec{spec(longest+"X", 8)}}), "invalid",
		},
		"inventories are of classes": {host, has("a", spec("VCPU", 8), spec("CUSTOM_X", 8)), "invalid"},
		"a provider may be in an aggregate twice": {
			verbs{create("a", ""), aggregate("a", 0, "g", "g")}, aggregate("a", 1), "a(name of a)@2",
		},
		"a claim is reshaped away": {
			held, reshape("a", 2, nil, ClaimRequest{Consumer: "x", Generation: &one}), "a(name of a)@4",
		},
		"a claim stands on its old class until the reshape takes it": {
			held,
			reshape("a", 2, []InventorySpec{spec("DISK_GB", 8)},
				ClaimRequest{Consumer: "x", Generation: &one, Demands: []Demand{demand("a", "VCPU", 2)}}),
			CodeInventoryInUse,
		},
		"a reshape of a class that is not there": {
			held, reshape("a", 2, []InventorySpec{spec("CUSTOM_X", 8)}), "invalid",
		},
		"a reshape compares consumer generations": {
			held,
			reshape("a", 2, []InventorySpec{spec("VCPU", 8)},
				ClaimRequest{Consumer: "x", Demands: []Demand{demand("a", "VCPU", 2)}}),
			CodeConcurrentUpdate,
		},
	} {
		t.Run(name, func(t *testing.T) {
			m := newReplay(t)
			m.do(test.before...)
			before := m.summary()
			txn, errs := m.decide(test.verb)
			if !m.commit(txn) {
				t.Fatal("the transaction does not hold")
			}
			if got, want := dump(m.State), dump(m.copy()); got != want {
				t.Errorf("followed\n%s\nloaded\n%s", got, want)
			}
			got := m.summary()
			if errs[0] != nil {
				if got != before {
					t.Errorf("%s although it is refused, before %s", got, before)
				}
				got = refusal(errs[0])
			}
			if got != test.want {
				t.Errorf("%s (%v), want %s", got, errs[0], test.want)
			}
		})
	}
}

// refusal returns the code of a refusal, or its kind.
func refusal(err error) string {
	if refused, ok := errors.AsType[*Error](err); ok && refused.Code != "" {
		return refused.Code
	}
	for text, kind := range map[string]croft.Kind{"invalid": croft.Invalid, "not found": croft.NotFound,
		"conflict": croft.Conflict} {
		if errors.Is(err, kind) {
			return text
		}
	}
	return err.Error()
}

func TestBringingTellsWhatItDid(t *testing.T) {
	m := newReplay(t)
	spec := ProviderSpec{Name: "n", Inventories: []InventorySpec{spec("VCPU", 8)}, Aggregates: []string{"g"}}
	for i, want := range []Brought{Created, Unchanged, Changed, Unchanged} {
		if i == 2 {
			spec.Aggregates = nil
		}
		var got Brought
		m.do(func(t *Tx) (err error) { got, err = t.BringProvider("a", spec); return err })
		if got != want {
			t.Errorf("call %d: %v, want %v", i, got, want)
		}
	}
}

func TestThereAreNoMoreCustomNamesThanAllowed(t *testing.T) {
	m := newReplay(t)
	for n := range maxCustom {
		for _, symbols := range []*Symbols{m.classes, m.traits} {
			symbols.put(fmt.Sprint("CUSTOM_", n), 1000, 1, 1)
		}
	}
	needs := func(class, trait string) func(*Tx) error {
		want := ProviderSpec{Name: "n"}
		if class != "" {
			want.Inventories = []InventorySpec{spec(class, 1)}
		}
		if trait != "" {
			want.Traits = []string{trait}
		}
		return bring("a", want)
	}
	ensure := func(name string) func(*Tx) error {
		return func(t *Tx) error { _, _, err := t.EnsureTrait(name); return err }
	}
	for i, verb := range []func(*Tx) error{createClass("CUSTOM_X"), ensure("CUSTOM_X"), needs("CUSTOM_X", ""),
		needs("", "CUSTOM_X")} {
		if _, errs := m.decide(verb); !errors.Is(errs[0], ErrFull) || !errors.Is(errs[0], croft.Invalid) {
			t.Errorf("request %d: %v", i, errs[0])
		}
	}
	if _, errs := m.decide(createClass("CUSTOM_1")); refusal(errs[0]) != "conflict" {
		t.Errorf("a class that exists: %v", errs[0])
	}
	m.classes.remove("CUSTOM_7")
	_, errs := m.decide(func(t *Tx) error {
		t.classes.get("CUSTOM_1") // names that are only read do not count
		t.classes.get("VCPU")
		t.classes.get("CUSTOM_Z")
		return nil
	}, createClass("CUSTOM_X"), createClass("CUSTOM_Y"))
	if errs[1] != nil || !errors.Is(errs[2], ErrFull) {
		t.Errorf("where one more is allowed, two are created: %v, %v", errs[1], errs[2])
	}
}
