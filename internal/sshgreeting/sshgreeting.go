// Package sshgreeting checks whether an SSH server answers, without logging in.
package sshgreeting

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"strings"
)

// Read reads the greeting of the SSH server at an address with port, once, until ctx ends. The error says why it could
// not.
func Read(ctx context.Context, address string) error {
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", address)
	if err != nil {
		return err
	}
	defer conn.Close()
	deadline, _ := ctx.Deadline()
	_ = conn.SetReadDeadline(deadline) // an open connection accepts a deadline
	line, err := bufio.NewReader(conn).ReadString('\n')
	if err == nil && !strings.HasPrefix(line, "SSH-") {
		err = fmt.Errorf("%.40q is not a greeting of an SSH server", line)
	}
	return err
}
