package croft_test

import (
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"croft/tenant"
)

// TestEveryKeyHasALimit compares the tables of docs/users/security-api.md with the list in etcdstore/keys.go: each key
// has a row with the callers who can make it grow, its limit, and the account that it is charged to. The limits in the
// rows are those of the code.
func TestEveryKeyHasALimit(t *testing.T) {
	const page, keysFile = "docs/users/security-api.md", "etcdstore/keys.go"
	_, section, is := strings.Cut(read(t, page), "\n## What tenants can store\n")
	if !is {
		t.Fatalf("%s does not say what tenants can store", page)
	}
	section, _, _ = strings.Cut(section, "\n## ")
	rows := map[string][]string{}
	table, operators, _ := strings.Cut(section, "\nHosts, their agents and operators alone write ")
	for _, row := range regexp.MustCompile("(?m)^\\| `([^`]+)` \\|(.*)\\|$").FindAllStringSubmatch(table, -1) {
		cells := strings.Split(row[2], " | ")
		if len(cells) != 3 || slices.ContainsFunc(cells, func(c string) bool { return strings.TrimSpace(c) == "" }) {
			t.Errorf("%s: the row of %s does not say who, how many, and where they are charged", page, row[1])
		}
		rows[row[1]] = cells
	}
	for _, key := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(operators, -1) {
		rows[key[1]] = nil
	}
	listed := regexp.MustCompile(`(?m)^//\t/croft/<partition>/(.+?)(?:  .*)?$`)
	for _, k := range listed.FindAllStringSubmatch(read(t, keysFile), -1) {
		if _, is := rows[k[1]]; !is {
			t.Errorf("%s does not limit %s, which %s lists: say who can make it grow, its limit, and where it is charged",
				page, k[1], keysFile)
		}
		delete(rows, k[1])
	}
	for key := range rows {
		t.Errorf("%s limits %s, which %s does not list", page, key, keysFile)
	}
	table = strings.ReplaceAll(table, "\n", " ") // the text above the table is wrapped
	for _, m := range tenant.Bounded() {
		bound, _ := tenant.Account{}.Limit(nil, m)
		if !strings.Contains(table, "`"+string(m)+"`: "+strconv.FormatInt(bound, 10)) &&
			!strings.Contains(table, "`"+string(m)+"`, "+strconv.FormatInt(bound, 10)) {
			t.Errorf("%s does not say that the bound of %s is %d", page, m, bound)
		}
	}
}
