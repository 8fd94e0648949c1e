package xmlrpc

import (
	"bytes"
	"encoding/base64"
	"encoding/xml"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
)

const header = "<?xml version='1.0'?>\n"

// response encodes a response with one value.
func response(value any) ([]byte, error) {
	b := bytes.NewBufferString(header + "<methodResponse>\n<params>\n<param>\n")
	if err := writeValue(b, value); err != nil {
		return nil, err
	}
	b.WriteString("</param>\n</params>\n</methodResponse>\n")
	return b.Bytes(), nil
}

// fault encodes an error.
func fault(code int, text string) []byte {
	b := bytes.NewBufferString(header + "<methodResponse>\n<fault>\n")
	_ = writeValue(b, map[string]any{"faultCode": code, "faultString": text}) // writeValue supports these types
	b.WriteString("</fault>\n</methodResponse>\n")
	return b.Bytes()
}

func writeValue(b *bytes.Buffer, value any) error {
	b.WriteString("<value>")
	if err := writeTyped(b, value); err != nil {
		return err
	}
	b.WriteString("</value>\n")
	return nil
}

func writeTyped(b *bytes.Buffer, value any) error {
	switch v := value.(type) {
	case nil:
		b.WriteString("<nil/>")
	case bool:
		fmt.Fprintf(b, "<boolean>%d</boolean>", map[bool]int{true: 1}[v])
	case int:
		writeInt(b, int64(v))
	case int64:
		writeInt(b, v)
	case float64:
		b.WriteString("<double>" + strconv.FormatFloat(v, 'g', -1, 64) + "</double>")
	case string:
		b.WriteString("<string>")
		writeText(b, v)
		b.WriteString("</string>")
	case []byte:
		b.WriteString("<base64>\n" + base64.StdEncoding.EncodeToString(v) + "\n</base64>")
	case []any:
		return writeArray(b, v)
	case map[string]any:
		return writeStruct(b, v)
	default:
		return fmt.Errorf("XML-RPC has no value for a %T", value)
	}
	return nil
}

// writeInt writes integers beyond 32 bits as i8, a common extension.
func writeInt(b *bytes.Buffer, v int64) {
	kind := "int"
	if v > math.MaxInt32 || v < math.MinInt32 {
		kind = "i8"
	}
	fmt.Fprintf(b, "<%s>%d</%s>", kind, v, kind)
}

func writeText(b *bytes.Buffer, text string) {
	_ = xml.EscapeText(b, []byte(text)) // a buffer accepts everything
}

func writeArray(b *bytes.Buffer, values []any) error {
	b.WriteString("<array><data>\n")
	for _, v := range values {
		if err := writeValue(b, v); err != nil {
			return err
		}
	}
	b.WriteString("</data></array>")
	return nil
}

func writeStruct(b *bytes.Buffer, members map[string]any) error {
	b.WriteString("<struct>\n")
	for _, name := range slices.Sorted(maps.Keys(members)) {
		b.WriteString("<member>\n<name>")
		writeText(b, name)
		b.WriteString("</name>\n")
		if err := writeValue(b, members[name]); err != nil {
			return err
		}
		b.WriteString("</member>\n")
	}
	b.WriteString("</struct>")
	return nil
}
