package schedule

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"croft"
)

const (
	aggregate1 = "11111111-1111-4111-8111-111111111111"
	aggregate2 = "22222222-2222-4222-8222-222222222222"
	small      = "resources=DISK_GB:1,MEMORY_MB:256,VCPU:1"
)

func TestParseQuery(t *testing.T) {
	for _, c := range []struct{ name, text, want string }{
		{"amounts in any order", "resources=VCPU:1,DISK_GB:1,MEMORY_MB:256", small},
		{"the amounts alone", "VCPU:1,MEMORY_MB:256,DISK_GB:1", small},
		{"the amounts alone and then more", "VCPU:1,MEMORY_MB:256,DISK_GB:1&required=CUSTOM_A",
			small + "&required=CUSTOM_A"},
		{"escapes and blanks at the ends", "resources=VCPU%3A1,MEMORY_MB:256,DISK_GB:1%20&required=HW_CPU_X86_AVX2%20",
			small + "&required=HW_CPU_X86_AVX2"},
		{"a custom class", "resources=CUSTOM_FPGA:2,VCPU:1,MEMORY_MB:256,DISK_GB:1",
			"resources=CUSTOM_FPGA:2,DISK_GB:1,MEMORY_MB:256,VCPU:1"},
		{"required and forbidden traits", small + "&required=!COMPUTE_NODE,HW_CPU_X86_AVX2,CUSTOM_GOLD",
			small + "&required=CUSTOM_GOLD,HW_CPU_X86_AVX2,!COMPUTE_NODE"},
		{"a choice of traits", small + "&required=in:HW_CPU_X86_SSE,HW_CPU_X86_AVX2&required=CUSTOM_GOLD",
			small + "&required=CUSTOM_GOLD&required=in:HW_CPU_X86_AVX2,HW_CPU_X86_SSE"},
		{"the same trait twice is once", small + "&required=CUSTOM_A,CUSTOM_A&required=CUSTOM_A",
			small + "&required=CUSTOM_A"},
		{"aggregates", small + "&member_of=in:" + aggregate2 + "," + aggregate1 + "&member_of=!" + aggregate2,
			small + "&member_of=in:" + aggregate1 + "," + aggregate2 + "&member_of=!" + aggregate2},
		{"none of several aggregates", small + "&member_of=!in:" + aggregate2 + "," + aggregate1,
			small + "&member_of=!" + aggregate1 + "&member_of=!" + aggregate2},
		{"a host by its UUID without dashes", small + "&in_tree=" + strings.ReplaceAll(aggregate1, "-", ""),
			small + "&in_tree=" + aggregate1},
		{"numbered groups", "resources1=VCPU:1&resources2=MEMORY_MB:256&resources=DISK_GB:1&group_policy=none",
			"resources=DISK_GB:1&resources1=VCPU:1&resources2=MEMORY_MB:256&group_policy=none"},
		{"a group by name", "resources=MEMORY_MB:256,DISK_GB:1&resources_NUMA=VCPU:2&required_NUMA=CUSTOM_A",
			"resources=DISK_GB:1,MEMORY_MB:256&resources_NUMA=VCPU:2&required_NUMA=CUSTOM_A"},
		{"a group of traits alone in a subtree",
			small + "&required_A=CUSTOM_A&resources_B=CUSTOM_B:1&same_subtree=_B,_A&group_policy=none",
			small + "&required_A=CUSTOM_A&resources_B=CUSTOM_B:1&group_policy=none&same_subtree=_A,_B"},
		{"the largest amount", "resources=DISK_GB:1,MEMORY_MB:2147483647,VCPU:1",
			"resources=DISK_GB:1,MEMORY_MB:2147483647,VCPU:1"},
		{"units", "VCPU:1,MEMORY_MB:2G,DISK_GB:1T", "resources=DISK_GB:1024,MEMORY_MB:2048,VCPU:1"},
		{"the unit of the class itself, and a smaller one", "VCPU:1,MEMORY_MB:256M,DISK_GB:2048m",
			"resources=DISK_GB:2,MEMORY_MB:256,VCPU:1"},
		{"lower case", "vcpu:1,memory_mb:1g,disk_gb:1", "resources=DISK_GB:1,MEMORY_MB:1024,VCPU:1"},
		{"the same host twice", small + "&in_tree=" + aggregate1 + "&in_tree=" + aggregate1,
			small + "&in_tree=" + aggregate1},
		{"one aggregate", small + "&member_of=" + aggregate1, small + "&member_of=" + aggregate1},
		{"forbidden traits in any order", small + "&required=!CUSTOM_B,!CUSTOM_A",
			small + "&required=!CUSTOM_A,!CUSTOM_B"},
		{"a trait that is one of a choice and forbidden", small + "&required=in:CUSTOM_A,CUSTOM_B&required=!CUSTOM_A",
			small + "&required=!CUSTOM_A&required=in:CUSTOM_A,CUSTOM_B"},
		{"groups in any order", "resources_B=MEMORY_MB:256,DISK_GB:1&resources_A=VCPU:1&group_policy=none",
			"resources_A=VCPU:1&resources_B=DISK_GB:1,MEMORY_MB:256&group_policy=none"},
		{"traits of the root", small + "&root_required=!CUSTOM_B,CUSTOM_A",
			small + "&root_required=!CUSTOM_B,CUSTOM_A"},
	} {
		t.Run(c.name, func(t *testing.T) {
			q, err := ParseQuery(c.text)
			if err != nil {
				t.Fatal(err)
			}
			if got := q.Encode(); got != c.want {
				t.Errorf("got  %s\nwant %s", got, c.want)
			}
		})
	}
}

func TestParseQueryRefuses(t *testing.T) {
	for _, c := range []struct{ name, text, want string }{
		{"nothing", " ", "the query is empty"},
		{"a mistyped parameter", "resurces=VCPU:1", `unknown parameter "resurces"; did you mean "resources"?`},
		{"a parameter with a letter too many", small + "&requireds=CUSTOM_A",
			`unknown parameter "requireds"; did you mean "required"?`},
		{"a unit of a class without units", "VCPU:1G,MEMORY_MB:256,DISK_GB:1", `VCPU: "1G" is not a whole number`},
		{"an unknown unit", "VCPU:1,MEMORY_MB:256,DISK_GB:1E",
			`DISK_GB: "1E" is not a whole number of GiB, such as 20, or 20G`},
		{"a unit without a number", "VCPU:1,MEMORY_MB:G,DISK_GB:1", `MEMORY_MB: "G" is not a whole number of MiB`},
		{"less than a whole unit", "VCPU:1,MEMORY_MB:256,DISK_GB:512M", `DISK_GB: "512M" is not a whole number of GiB`},
		{"nothing of a unit", "VCPU:1,MEMORY_MB:256,DISK_GB:0T", `DISK_GB: ask for at least 1`},
		{"more than can be claimed, with a unit", "VCPU:1,MEMORY_MB:4096T,DISK_GB:1",
			`MEMORY_MB: 4096T is more than the most that can be claimed, 2147483647`},
		{"far more than can be counted", "VCPU:1,MEMORY_MB:18446744073709551615T,DISK_GB:1", "more than the most"},
		{"a class twice, once in lower case", "VCPU:1,vcpu:2,MEMORY_MB:256,DISK_GB:1", "VCPU is said twice"},
		{"a far-fetched parameter", small + "&flavor=big", `unknown parameter "flavor"`},
		{"a class with an equals sign", "VCPU=1,MEMORY_MB=256", "VCPU is a resource class, not a parameter: write VCPU:AMOUNT"},
		{"a limit", small + "&limit=1", "limit is the scheduler's own to say"},
		{"a mistyped class", "resources=VPCU:1", `unknown resource class "VPCU"; did you mean "VCPU"?`},
		{"a mistyped class in small letters", "resources=memory_m:1", `unknown resource class "memory_m"`},
		{"an empty custom class", "resources=CUSTOM_:1", `unknown resource class "CUSTOM_"`},
		{"a mistyped trait", small + "&required=HW_CPU_X86_AVX22",
			`unknown trait "HW_CPU_X86_AVX22"; did you mean "HW_CPU_X86_AVX2"?`},
		{"an amount that is no number", "resources=MEMORY_MB:x", `MEMORY_MB: "x" is not a whole number`},
		{"an amount with a sign", "resources=MEMORY_MB:%2B5", `"+5" is not a whole number`},
		{"an amount of nothing", "resources=VCPU:0", "VCPU: ask for at least 1"},
		{"an amount out of this world", "resources=VCPU:2147483648", "more than the most that can be claimed"},
		{"an amount left out", "resources=VCPU", `"VCPU" is no CLASS:AMOUNT`},
		{"a class twice", "resources=VCPU:1,VCPU:2", "VCPU is said twice"},
		{"the amounts twice", small + "&" + small, "said twice"},
		{"a parameter without a value", "resources=", "resources has no value"},
		{"a term without an equals sign", small + "&required", `"required" is not of the form key=value`},
		{"a broken escape", "resources=VCPU%3:1", "broken % escape"},
		{"no VCPU", "resources=MEMORY_MB:256,DISK_GB:1", "asks for no VCPU"},
		{"no memory", "resources=VCPU:1,DISK_GB:1",
			"asks for no MEMORY_MB, which every instance needs to boot: add MEMORY_MB:256"},
		{"no disk", "VCPU:1,MEMORY_MB:256", "asks for no DISK_GB"},
		{"traits without resources", "required=CUSTOM_A", "resources is missing"},
		{"traits of a group that does not exist", small + "&required1=CUSTOM_A", "resources1 is missing"},
		{"a trait that is required and forbidden", small + "&required=CUSTOM_A,!CUSTOM_A",
			"required and forbidden at once"},
		{"several groups without a policy", "resources1=VCPU:1&resources2=MEMORY_MB:256,DISK_GB:1",
			"need group_policy=none"},
		{"a mistyped policy", small + "&group_policy=isolated", `did you mean "isolate"?`},
		{"an aggregate that is no UUID", small + "&member_of=rack7", `"rack7" is not a UUID`},
		{"several aggregates without in:", small + "&member_of=" + aggregate1 + "," + aggregate2, "in:UUID,UUID"},
		{"two hosts", small + "&in_tree=" + aggregate1 + "&in_tree=" + aggregate2, "an instance runs on one"},
		{"a parameter of the whole query with a suffix", small + "&same_subtree1=_A",
			`unknown parameter "same_subtree1"`},
		{"a suffix of other letters", small + "&resources_ä=VCPU:1", `unknown parameter "resources_ä"`},
		{"a mistyped trait of a choice", small + "&required=in:CUSTOM_A,CSTM_B", `unknown trait "CSTM_B"`},
		{"a mistyped trait of the root", small + "&root_required=CUSTOM_A,CSTM_B", `unknown trait "CSTM_B"`},
		{"a host that is no UUID", small + "&in_tree=rack7", `"rack7" is not a UUID`},
		{"a subtree of the group without a suffix", small + "&resources_A=VCPU:1&same_subtree=_A,",
			`there is no group ""`},
		{"traits alone that a subtree without a suffix names", "required=CUSTOM_A&same_subtree=,",
			"resources is missing"},
		{"a suffix alone", small + "&_A=VCPU:1", `unknown parameter "_A"`},
		{"a subtree of nothing", small + "&same_subtree=_A", `there is no group "_A"`},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := ParseQuery(c.text)
			if croft.KindOf(err) != croft.Invalid || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got error %v of kind %q, want an invalid one with %q", err, croft.KindOf(err), c.want)
			}
			if err != nil && strings.ContainsRune(err.Error(), '\n') {
				t.Errorf("more than one line: %q", err)
			}
		})
	}
}

func TestParseTrait(t *testing.T) {
	for name, valid := range map[string]bool{"CUSTOM_SSD": true, "HW_CPU_X86_AVX2": true, "ssd": false,
		"CUSTOM_": false} {
		trait, err := ParseTrait(name)
		if valid && (err != nil || string(trait) != name) ||
			!valid && (croft.KindOf(err) != croft.Invalid || trait != "") {
			t.Errorf("%s: %q, %v", name, trait, err)
		}
	}
}

func TestTotalSumsTheGroups(t *testing.T) {
	q, err := ParseQuery("resources=DISK_GB:1,VCPU:1&resources1=VCPU:2,MEMORY_MB:512")
	if err != nil {
		t.Fatal(err)
	}
	want := croft.Resources{croft.VCPU: 3, croft.MemoryMB: 512, croft.DiskGB: 1}
	if diff := cmp.Diff(want, q.Total()); diff != "" {
		t.Error(diff)
	}
}

func TestLooksLikeQuery(t *testing.T) {
	for text, want := range map[string]bool{small: true, "VCPU:1": true, "resurces=1": true, "web-1": false,
		aggregate1: false} {
		if got := LooksLikeQuery(text); got != want {
			t.Errorf("LooksLikeQuery(%q) = %v", text, got)
		}
	}
}

// Every accepted query keeps its meaning through Encode and ParseQuery.
func FuzzParseQuery(f *testing.F) {
	for _, seed := range []string{
		small, "VCPU:1,MEMORY_MB:256,DISK_GB:1",
		small + "&required=in:CUSTOM_A,CUSTOM_B&required=!CUSTOM_C&root_required=!CUSTOM_A",
		small + "&member_of=!in:" + aggregate1 + "&in_tree=" + aggregate2 + "&required=in:CUSTOM_A",
		"resources1=VCPU:1&resources_a=MEMORY_MB:256,DISK_GB:1&group_policy=isolate&same_subtree=1,_a", "resources=%zz",
		"&&=",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		q, err := ParseQuery(text)
		if err != nil {
			if croft.KindOf(err) != croft.Invalid {
				t.Fatalf("%q: %v has kind %q", text, err, croft.KindOf(err))
			}
			return
		}
		again, err := ParseQuery(q.Encode())
		if err != nil {
			t.Fatalf("%q encodes to %q: %v", text, q.Encode(), err)
		}
		if diff := cmp.Diff(q, again, cmpopts.EquateEmpty()); diff != "" {
			t.Fatalf("%q encodes to %q, which differs: %s", text, q.Encode(), diff)
		}
	})
}
