package server_test

import (
	"strings"
	"testing"

	"croft/internal/testing/patient"
	"croft/pool/api"
	"croft/pool/pooltest"
	"croft/pool/server"
)

func TestOnlyAdminsReadWhatAFailedStartPrinted(t *testing.T) {
	const failing = "p: {cmd_new: 'echo password >&2; exit 1', cmd_delete: 'true', tags: [x86_64]}\n"
	m, ci, boss := oneOf(t, failing, pooltest.NewMemory(), server.Quota{})
	admin, user := client(t, boss, m.URL), client(t, ci, m.URL)
	ticket := opened(t, user, "x86_64")
	var seen api.Ticket
	patient.Until(t, "the start fails", func() bool {
		var err error
		seen, err = admin.Ticket(bounded(t), ticket.ID)
		return err == nil && strings.Contains(seen.WaitsFor, "fails to start anything")
	})
	if !strings.Contains(seen.WaitsFor, "(the command ended with status 1: password)") {
		t.Errorf("an admin reads %q", seen.WaitsFor)
	}
	seen, err := user.Ticket(bounded(t), ticket.ID)
	if err != nil || strings.Contains(seen.WaitsFor, "password") {
		t.Errorf("its owner reads %q, %v", seen.WaitsFor, err)
	}
	tickets, err := user.Tickets(bounded(t), api.Selection{})
	if err != nil || len(tickets.Tickets) != 1 || strings.Contains(tickets.Tickets[0].WaitsFor, "password") {
		t.Errorf("and in the list %+v, %v", tickets, err)
	}
}
