package client

import (
	"strconv"
	"testing"

	"croft"
)

func TestAListThatNeverEndsIsNotFollowedForEver(t *testing.T) {
	t.Parallel()
	for name, page := range map[string]func(n int) (entries int, next string){
		"the same page again":      func(int) (int, string) { return 1, "here" },
		"pages without entries":    func(n int) (int, string) { return 0, strconv.Itoa(n) },
		"a new page for each page": func(n int) (int, string) { return 1, strconv.Itoa(n) },
	} {
		t.Run(name, func(t *testing.T) {
			var p pages
			after := ""
			for n := range 100_000 {
				entries, next := page(n)
				if err := p.next(entries, after, next); err != nil {
					if croft.KindOf(err) != croft.Unavailable {
						t.Errorf("ends with %v", err)
					}
					return
				}
				after = next
			}
			t.Error("100,000 pages were read")
		})
	}
}

func TestAListMayHaveManyPages(t *testing.T) {
	t.Parallel()
	var p pages
	for n := range 1000 {
		if err := p.next(5000, strconv.Itoa(n), strconv.Itoa(n+1)); err != nil {
			t.Fatal(err)
		}
	}
	if err := p.next(0, "1000", ""); err != nil {
		t.Errorf("the last page: %v", err)
	}
}
