package bundle

import (
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/url"
	"strings"
	"unicode/utf16"
)

// encodings are the other forms in which a secret stands in texts: base64 wherever it begins in what was encoded, of
// both alphabets, hexadecimal, percent escapes, and the escapes of JSON.
func encodings(secret string) []string {
	var out []string
	for _, coding := range []*base64.Encoding{base64.RawStdEncoding, base64.RawURLEncoding} {
		for before := range 3 {
			// Of the first and the last character, some bits may be of what stands beside the secret.
			text := coding.EncodeToString(append(make([]byte, before), secret...))
			first, last := (before*8+5)/6, (before+len(secret))*8/6
			out = append(out, text[first:last])
		}
	}
	out = append(out, hex.EncodeToString([]byte(secret)), strings.ToUpper(hex.EncodeToString([]byte(secret))),
		url.QueryEscape(secret), url.PathEscape(secret), strings.ReplaceAll(url.QueryEscape(secret), "+", "%20"))
	var percent, percentLower strings.Builder
	for _, b := range []byte(secret) {
		fmt.Fprintf(&percent, "%%%02X", b)
		fmt.Fprintf(&percentLower, "%%%02x", b)
	}
	out = append(out, percent.String(), percentLower.String())
	for _, s := range out {
		if strings.Contains(s, "%") {
			out = append(out, lowerEscapes(s))
		}
	}
	return append(out, jsonForms(secret)...)
}

// lowerEscapes writes percent escapes with small letters.
func lowerEscapes(s string) string {
	b := []byte(s)
	for i := 0; i+2 < len(b); i++ {
		if b[i] == '%' {
			copy(b[i+1:i+3], strings.ToLower(string(b[i+1:i+3])))
		}
	}
	return string(b)
}

// jsonForms are a text as programs write it in JSON: with the escapes of Go, without those of HTML, and with all
// characters beyond ASCII escaped, as Python does; with slashes escaped, as PHP does; and each of them in JSON again.
func jsonForms(secret string) []string {
	var out []string
	quoted := func(s string) string {
		text, err := json.Marshal(s)
		if err != nil || len(text) < 2 {
			return s
		}
		return string(text[1 : len(text)-1])
	}
	plain := strings.NewReplacer(`\u003c`, "<", `\u003e`, ">", `\u0026`, "&").Replace(quoted(secret))
	out = append(out, quoted(secret), plain, ascii(plain), strings.ReplaceAll(plain, "/", `\/`), ascii(quoted(secret)))
	var all strings.Builder
	for _, unit := range utf16.Encode([]rune(secret)) {
		fmt.Fprintf(&all, `\u%04x`, unit)
	}
	for _, s := range out[:5] {
		out = append(out, quoted(s))
	}
	return append(out, all.String(), strings.ReplaceAll(strings.ToUpper(all.String()), `\U`, `\u`))
}

// ascii escapes what is beyond ASCII.
func ascii(s string) string {
	var b strings.Builder
	for _, r := range s {
		if r < 0x80 {
			b.WriteRune(r)
			continue
		}
		for _, unit := range utf16.Encode([]rune{r}) {
			fmt.Fprintf(&b, `\u%04x`, unit)
		}
	}
	return b.String()
}
