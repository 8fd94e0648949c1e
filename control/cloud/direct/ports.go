package direct

import (
	"context"
	"fmt"
	"io"
	"net"
	"strconv"
	"time"

	"croft"
	"croft/schedule"
)

// portTime limits the time to wait for a guest's port to answer.
const portTime = 10 * time.Second

// ports implements cloud.Ports from where this process runs.
type ports struct{}

// Connect implements cloud.Ports.
func (ports) Connect(ctx context.Context, st croft.Status, port int, use func(io.ReadWriteCloser) error) error {
	address := schedule.Address(&st)
	if address == "" {
		return croft.Errorf(croft.NotFound, "instance %s has no address: it is %s", st.Instance.Name,
			schedule.Describe(&st))
	}
	dialer := net.Dialer{Timeout: portTime}
	conn, err := dialer.DialContext(ctx, "tcp", net.JoinHostPort(address, strconv.Itoa(port)))
	if err != nil {
		return croft.Errorf(croft.Unavailable, "port %d of instance %s does not answer at %s: %w", port,
			st.Instance.Name, address, err)
	}
	defer conn.Close()
	if err := use(conn); err != nil {
		return fmt.Errorf("port %d of instance %s: %w", port, st.Instance.Name, err)
	}
	return nil
}
