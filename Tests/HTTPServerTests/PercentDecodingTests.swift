import Testing

@testable import HTTPServer

@Suite struct PercentDecodingTests {
    @Test(arguments: [
        ("", ""), ("abc", "abc"), ("a%20b", "a b"), ("%C3%A9%e2%82%ac", "é€"), ("a%2Fb", "a/b"), ("a+b", "a+b"),
        ("%25%32%35", "%25"), ("%00", "\0"),
    ])
    func tripletsBecomeBytes(_ text: String, decoded: String) {
        #expect(decode(text) == decoded)
    }

    @Test func aPlusIsASpaceWhereAFormSaysSo() {
        #expect(decode("a+b%2Bc", plusIsSpace: true) == "a b+c")
    }

    @Test(arguments: ["%FF", "%C3", "%C3%28", "%ED%A0%80", "%C0%AF"])
    func whatIsNotUTF8IsNotDecoded(_ text: String) {
        #expect(decode(text) == nil)
    }

    private func decode(_ text: String, plusIsSpace: Bool = false) -> String? {
        Array(text.utf8).withUnsafeBytes { PercentDecoding.decode($0, plusIsSpace: plusIsSpace) }
    }
}
