package keystonetest

import (
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"net/http"
)

func reply(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body) // ignored: the client may be gone
}

func refuse(w http.ResponseWriter, status int, message string) {
	reply(w, status, map[string]any{"error": map[string]any{"code": status, "message": message,
		"title": http.StatusText(status)}})
}

func pemOf(c *x509.Certificate) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c.Raw})
}
