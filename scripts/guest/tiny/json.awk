# Prints every scalar of a JSON text as PATH<tab>VALUE, one per line, where PATH
# joins the keys with dots: {"a":{"b":1},"c":["x"]} gives ".a.b<tab>1", ".c.0<tab>x".
# White space inside a value becomes a space, so that a line is always one value.
# Exits 1 at the first thing that is not JSON.
{ text = text $0 "\n" }

END {
	value("")
	space()
	if (text != "") fail()
}

function fail() { exit 1 }

function space() { sub(/^[ \t\r\n]+/, "", text) }

# take removes the first character of the text and returns it.
function take(   c) {
	c = substr(text, 1, 1)
	text = substr(text, 2)
	return c
}

function value(path,   c) {
	space()
	c = substr(text, 1, 1)
	if (c == "{") { members(path); return }
	if (c == "[") { elements(path); return }
	if (c == "\"") { print path "\t" string(); return }
	if (!match(text, /^(-?[0-9][0-9.eE+-]*|true|false|null)/)) fail()
	print path "\t" substr(text, 1, RLENGTH)
	text = substr(text, RLENGTH + 1)
}

function members(path,   key, c) {
	take()
	space()
	if (substr(text, 1, 1) == "}") { take(); return }
	do {
		space()
		if (substr(text, 1, 1) != "\"") fail()
		key = string()
		space()
		if (take() != ":") fail()
		value(path "." key)
		space()
		c = take()
	} while (c == ",")
	if (c != "}") fail()
}

function elements(path,   i, c) {
	take()
	space()
	if (substr(text, 1, 1) == "]") { take(); return }
	i = 0
	do {
		value(path "." i++)
		space()
		c = take()
	} while (c == ",")
	if (c != "]") fail()
}

function string(   out, c) {
	take()
	out = ""
	for (;;) {
		if (match(text, /^[^"\\]+/)) {
			out = out substr(text, 1, RLENGTH)
			text = substr(text, RLENGTH + 1)
		}
		c = take()
		if (c == "\"") break
		if (c != "\\") fail() # the text ended inside
		c = take()
		if (c == "u") {
			if (!match(text, /^[0-9a-fA-F][0-9a-fA-F][0-9a-fA-F][0-9a-fA-F]/)) fail()
			out = out unicode(substr(text, 1, 4))
			text = substr(text, 5)
		} else if (c ~ /[nrtbf]/) out = out " "
		else if (c ~ /["\\\/]/) out = out c
		else fail()
	}
	gsub(/[ \t\r\n]+/, " ", out)
	sub(/ $/, "", out)
	return out
}

# unicode: the character where it is ASCII; nothing a boot script needs is not.
function unicode(hex,   i, n) {
	n = 0
	for (i = 1; i <= 4; i++) n = n * 16 + index("123456789abcdef", tolower(substr(hex, i, 1)))
	if (n < 32) return " "
	return n < 127 ? sprintf("%c", n) : "?"
}
