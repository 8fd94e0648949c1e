package pool

import (
	"strconv"
	"strings"

	"croft"
)

func (id ResourceID) String() string { return strconv.FormatInt(int64(id), 10) }
func (id TicketID) String() string   { return strconv.FormatInt(int64(id), 10) }

// ParseTicketID reads the number of a ticket. Invalid.
func ParseTicketID(text string) (TicketID, error) {
	n, err := strconv.ParseInt(strings.TrimSpace(text), 10, 64)
	if err != nil || n < 1 {
		return 0, croft.Errorf(croft.Invalid, "%q is not a ticket number: use a whole number from 1", text)
	}
	return TicketID(n), nil
}

// ParseResourceID reads the number of a resource. Invalid.
func ParseResourceID(text string) (ResourceID, error) {
	n, err := strconv.ParseInt(strings.TrimSpace(text), 10, 64)
	if err != nil || n < 1 {
		return 0, croft.Errorf(croft.Invalid, "%q is not a resource number: use a whole number from 1", text)
	}
	return ResourceID(n), nil
}
