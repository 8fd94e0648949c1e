package api

import (
	"crypto/sha256"
	_ "embed"
	"encoding/hex"
	"sync"
)

// text is the document, which is made from the table of operations.
//
//go:embed openapi.json
var text []byte

// Document returns the OpenAPI document as JSON, the same bytes in every installation of a version.
func Document() []byte { return text }

// Hash returns the SHA-256 of Document in hexadecimal digits.
func Hash() string { return hash() }

var hash = sync.OnceValue(func() string {
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:])
})
