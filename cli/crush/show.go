package crush

import (
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"croft/cli/out"
	"croft/crush"
)

func showCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "show MAP",
		Short: "Check a map and print its tree",
		Args:  oneMap(1),
		RunE: func(cmd *cobra.Command, given []string) error {
			m, _, err := readMap(given[0])
			if err != nil {
				return err
			}
			t := &out.Table{Color: out.IsColored(cmd.OutOrStdout())}
			t.Head("ID", "CLASS", "WEIGHT", "TYPE", "NAME")
			tree{m, t}.print()
			return t.Print(cmd.OutOrStdout())
		},
	}
}

type tree struct {
	m *crush.Map
	t *out.Table
}

func (t tree) print() {
	inner := map[crush.ID]bool{}
	for _, b := range t.m.Buckets {
		for _, it := range b.Items {
			inner[it.ID] = true
		}
	}
	for i := range t.m.Buckets {
		if b := &t.m.Buckets[i]; !inner[b.ID] {
			t.bucket(b, b.Weight(), 0)
		}
	}
	for _, d := range t.m.Devices {
		if !inner[d.ID] {
			t.device(d.ID, 0, 0)
		}
	}
}

func (t tree) bucket(b *crush.Bucket, weight crush.Weight, depth int) {
	kind := strconv.Itoa(int(b.Type))
	for _, k := range t.m.Types {
		if k.Type == b.Type {
			kind = k.Name
		}
	}
	t.t.Texts(strconv.Itoa(int(b.ID)), "", weight.String(), kind, strings.Repeat("  ", depth)+b.Name)
	for _, it := range b.Items {
		if child := t.m.Bucket(it.ID); child != nil {
			t.bucket(child, it.Weight, depth+1)
			continue
		}
		t.device(it.ID, it.Weight, depth+1)
	}
}

func (t tree) device(id crush.ID, weight crush.Weight, depth int) {
	for _, d := range t.m.Devices {
		if d.ID == id {
			t.t.Texts(strconv.Itoa(int(id)), d.Class, weight.String(), "", strings.Repeat("  ", depth)+d.Name)
		}
	}
}
