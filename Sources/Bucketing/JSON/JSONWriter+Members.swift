/// Members of an object, each a name that needs no escapes and its value.
extension JSONWriter {
    public mutating func member(_ name: StaticString, _ text: String) {
        key(name)
        string(text)
    }

    public mutating func member(_ name: StaticString, _ text: String?) {
        key(name)
        if let text { string(text) } else { null() }
    }

    public mutating func member(_ name: StaticString, _ flag: Bool) {
        key(name)
        bool(flag)
    }

    public mutating func member(_ name: StaticString, _ number: some BinaryInteger) {
        key(name)
        integer(number)
    }

    public mutating func member(_ name: StaticString, _ texts: [String]) {
        key(name)
        beginArray()
        for text in texts { string(text) }
        endArray()
    }
}
