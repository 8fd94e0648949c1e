package vm

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"strings"
	"time"
)

// sshRetry is the pause between attempts to reach an SSH server.
const sshRetry = 250 * time.Millisecond

// answersSSH waits for the greeting of an SSH server, until ctx ends; then it returns the last error.
func answersSSH(ctx context.Context, address string) error {
	for {
		err := greets(ctx, net.JoinHostPort(address, "22"))
		if err == nil || ctx.Err() != nil {
			return err
		}
		select {
		case <-ctx.Done():
		case <-time.After(sshRetry):
		}
	}
}

// greets reads the greeting of an SSH server once.
func greets(ctx context.Context, address string) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", address)
	if err != nil {
		return err
	}
	defer conn.Close()
	deadline, _ := ctx.Deadline()
	_ = conn.SetReadDeadline(deadline) // an open connection accepts it
	line, err := bufio.NewReader(conn).ReadString('\n')
	if err == nil && !strings.HasPrefix(line, "SSH-") {
		err = fmt.Errorf("%.40q is no greeting of an SSH server", line)
	}
	return err
}
