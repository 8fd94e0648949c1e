package mdserver

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"strconv"
)

// The paths of the service outside the metadata trees.
const (
	tokenPath  = "/latest/api/token"
	reportPath = "/croft/v1/phone-home"
	healthPath = "/croft/health"
)

// Answers of healthPath, to the host only.
const (
	healthBody  = "croft metadata server\n"
	cloudHeader = "Croft-Partition"
	hostHeader  = "Croft-Host"
)

const (
	mimeText = "text/plain; charset=utf-8"
	mimeJSON = "application/json"
	mimeData = "application/octet-stream"
)

// fromHost reports a connection whose two ends have the same address: it was made on this host, because the
// kernel drops external packets with such a source.
func fromHost(ctx context.Context, addr netip.Addr) bool {
	local, ok := ctx.Value(http.LocalAddrContextKey).(net.Addr)
	if !ok {
		return false
	}
	to, err := netip.ParseAddrPort(local.String())
	return err == nil && to.Addr().Unmap() == addr
}

func answer(w http.ResponseWriter, body []byte, mime string) {
	w.Header().Set("Content-Type", mime)
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	w.Write(body) // an error means that the guest has disconnected
}

func refuse(w http.ResponseWriter, status int, sentence string) {
	w.Header().Set("Content-Type", mimeText)
	w.WriteHeader(status)
	fmt.Fprintln(w, sentence)
}

func notAllowed(w http.ResponseWriter) {
	w.Header().Set("Allow", "GET, HEAD")
	refuse(w, http.StatusMethodNotAllowed, "metadata can be read, not written")
}
