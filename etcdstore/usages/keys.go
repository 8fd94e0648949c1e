package usages

import (
	"fmt"
	"strconv"
	"strings"

	"croft"
	"croft/usage"
)

// Keys builds the keys of the history of usage, in the partition whose prefix it is. The list of all keys is in
// etcdstore; that of the head is among those of quotas.
type Keys string

func (k Keys) accounts() string           { return string(k) + "usage/now/" }
func (k Keys) account(id usage.ID) string { return k.accounts() + of(id) }
func (k Keys) allDays() string            { return string(k) + "usage/days/" }
func (k Keys) days(id usage.ID) string    { return k.allDays() + of(id) + "/" }
func (k Keys) day(id usage.ID, date string) string {
	return k.days(id) + date
}

// accountsOf is the prefix of the accounts of a project and of those of its name before.
func (k Keys) accountsOf(p croft.Project) string { return k.accounts() + string(p) + "/" }

// of is the end of the key of an account. Those of a name are in the order of their births.
func of(id usage.ID) string { return fmt.Sprintf("%s/%016x", id.Project, id.Born) }

// parse reads what follows a prefix: an account, and a date if it is a day.
func parse(key []byte, prefix string) (id usage.ID, date string) {
	project, rest, _ := strings.Cut(strings.TrimPrefix(string(key), prefix), "/")
	born, date, _ := strings.Cut(rest, "/")
	id = usage.ID{Project: croft.Project(project)}
	id.Born, _ = strconv.ParseInt(born, 16, 64) // our own key
	return id, date
}
