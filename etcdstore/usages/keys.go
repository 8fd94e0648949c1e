package usages

import (
	"fmt"
	"strconv"
	"strings"

	"croft"
	"croft/tenant/usage"
)

// Keys builds the keys of the history of usage; it is the prefix of the partition. The list of all keys is in
// etcdstore; the key of the head is among the keys of quotas.
type Keys string

func (k Keys) accounts() string           { return string(k) + "usage/now/" }
func (k Keys) account(id usage.ID) string { return k.accounts() + of(id) }
func (k Keys) allDays() string            { return string(k) + "usage/days/" }
func (k Keys) days(id usage.ID) string    { return k.allDays() + of(id) + "/" }
func (k Keys) day(id usage.ID, date string) string {
	return k.days(id) + date
}

// capacity is the key of the capacity meter, capacityOn the key of an earlier day.
func (k Keys) capacity() string              { return string(k) + "usage/capacity" }
func (k Keys) capacityOn(date string) string { return string(k) + "usage/offered/" + date }

// accountsOf returns the prefix of the accounts of a project and of former projects of its name.
func (k Keys) accountsOf(p croft.Project) string { return k.accounts() + string(p) + "/" }

// of returns the end of the key of an account. Accounts of one name are in the order in which they were born.
func of(id usage.ID) string { return fmt.Sprintf("%s/%016x", id.Project, id.Born) }

// parse parses the part of a key after a prefix: an account, and a date if it is the key of a day.
func parse(key []byte, prefix string) (id usage.ID, date string) {
	project, rest, _ := strings.Cut(strings.TrimPrefix(string(key), prefix), "/")
	born, date, _ := strings.Cut(rest, "/")
	id = usage.ID{Project: croft.Project(project)}
	id.Born, _ = strconv.ParseInt(born, 16, 64) // our own key
	return id, date
}
