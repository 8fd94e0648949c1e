package crush

import (
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"croft/crush"
	"croft/internal/out"
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
			printTree(m, t)
			return t.Print(cmd.OutOrStdout())
		},
	}
}

// tree prints a map.
type tree struct {
	t       *out.Table
	buckets map[crush.ID]*crush.Bucket
	devices map[crush.ID]crush.Device
	kinds   map[crush.Type]string
}

// printTree adds the buckets of a map with their items, and then the devices that are in no bucket.
func printTree(m *crush.Map, t *out.Table) {
	tr := tree{t, map[crush.ID]*crush.Bucket{}, map[crush.ID]crush.Device{}, map[crush.Type]string{}}
	for i := range m.Buckets {
		tr.buckets[m.Buckets[i].ID] = &m.Buckets[i]
	}
	for _, d := range m.Devices {
		tr.devices[d.ID] = d
	}
	for _, k := range m.Types {
		tr.kinds[k.Type] = k.Name
	}
	held := map[crush.ID]bool{}
	for _, b := range m.Buckets {
		for _, it := range b.Items {
			held[it.ID] = true
		}
	}
	for _, b := range m.Roots() {
		tr.bucket(b, b.Weight(), 0)
	}
	for _, d := range m.Devices {
		if !held[d.ID] {
			tr.device(d, 0, 0)
		}
	}
}

func (tr tree) bucket(b *crush.Bucket, weight crush.Weight, depth int) {
	tr.t.Texts(strconv.Itoa(int(b.ID)), "", weight.String(), tr.kinds[b.Type], strings.Repeat("  ", depth)+b.Name)
	for _, it := range b.Items {
		if child := tr.buckets[it.ID]; child != nil {
			tr.bucket(child, it.Weight, depth+1)
			continue
		}
		tr.device(tr.devices[it.ID], it.Weight, depth+1)
	}
}

func (tr tree) device(d crush.Device, weight crush.Weight, depth int) {
	tr.t.Texts(strconv.Itoa(int(d.ID)), d.Class, weight.String(), "", strings.Repeat("  ", depth)+d.Name)
}
