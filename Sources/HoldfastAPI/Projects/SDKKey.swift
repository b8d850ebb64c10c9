import HTTPServer

/// The name of a project.
enum SDKKey {
    /// 1 to 255 letters, digits and `+ / = _ . : -`.
    static func check(_ text: String) throws(Problem) -> String {
        let isKey = text.utf8.allSatisfy { byte in
            byte &- UInt8(ascii: "0") < 10 || (byte | 0x20) &- UInt8(ascii: "a") < 26 || "+/=_.:-".utf8.contains(byte)
        }
        guard isKey, (1...255).contains(text.utf8.count) else {
            throw Problem(
                .badRequest, "an SDK key must be 1 to 255 ASCII letters, digits and `+/=_.:-`; got '\(text)'")
        }
        return text
    }
}
