import Testing

@testable import HTTPServer

@Suite struct IPAddressTests {
    @Test(arguments: [
        ("192.0.2.1", "192.0.2.1"), ("0.0.0.0", "0.0.0.0"), ("2001:DB8:0:0:0:0:0:1", "2001:db8::1"), ("::1", "::1"),
        ("::ffff:192.0.2.1", "192.0.2.1"), ("::", "::"), ("255.255.255.255", "255.255.255.255"),
    ])
    func `An address is read and written`(text: String, written: String) throws {
        #expect(try #require(IPAddress(text)).description == written)
    }

    @Test(arguments: [
        "", "1", "1.2.3", "1.2.3.4.5", "256.0.0.1", "01.2.3.4", " 1.2.3.4", "1.2.3.4 ", "1.2.3.4:80", "[::1]", ":::",
        "unknown",
        "_hidden", "1.2.3.4\0", "fe80::1%eth0", "1::2::3", "12345::",
    ])
    func `What is no address is refused`(text: String) {
        #expect(IPAddress(text) == nil)
    }

    @Test(arguments: [
        ("10.0.0.0/8", "10.255.0.1", true), ("10.0.0.0/8", "11.0.0.0", false), ("10.1.2.3/8", "10.9.9.9", true),
        ("192.0.2.7", "192.0.2.7", true), ("192.0.2.7", "192.0.2.6", false), ("192.0.2.7/32", "192.0.2.6", false),
        ("0.0.0.0/0", "203.0.113.9", true), ("0.0.0.0/0", "2001:db8::1", false), ("::/0", "2001:db8::1", true),
        ("::/0", "203.0.113.9", false), ("2001:db8::/32", "2001:db8:ffff::1", true),
        ("2001:db8::/32", "2001:db9::", false),
        ("2001:db8::/65", "2001:db8:0:0:7fff::1", true), ("2001:db8::/65", "2001:db8:0:0:8000::1", false),
        ("::1/128", "::1", true), ("::1/128", "::2", false), ("::1/127", "::", true),
        ("2001:db8::/64", "2001:db8::ffff", true),
        ("10.0.0.0/8", "::ffff:10.0.0.1", true), ("::ffff:10.0.0.0/104", "10.0.0.1", true),
    ])
    func `A range has the addresses that begin like it`(range: String, address: String, isIn: Bool) throws {
        #expect(try #require(AddressRange(range)).contains(#require(IPAddress(address))) == isIn)
    }

    @Test(arguments: [
        "", "/", "10.0.0.0/", "10.0.0.0/33", "10.0.0.0/-1", "10.0.0.0/+1", "::/129", "10.0.0.0/8/8", "ten/8", "::1/ 8",
    ])
    func `What is no range is refused`(text: String) {
        #expect(AddressRange(text) == nil)
    }

    @Test(arguments: [
        (nil, "10.0.0.1"), ("", "10.0.0.1"), ("203.0.113.9", "203.0.113.9"), ("6.6.6.6, 203.0.113.9", "203.0.113.9"),
        ("203.0.113.9, 10.0.0.2,10.0.0.3", "203.0.113.9"), ("203.0.113.9,\t192.0.2.7", "203.0.113.9"),
        ("10.0.0.9, 10.0.0.8", "10.0.0.9"), ("203.0.113.9:4711", "203.0.113.9"), ("[2001:db8::1]:443", "2001:db8::1"),
        ("[2001:db8::1]", "2001:db8::1"), ("2001:db8::1", "2001:db8::1"), ("6.6.6.6, unknown, 10.0.0.2", "10.0.0.2"),
        ("unknown", "10.0.0.1"), (",", "10.0.0.1"), ("203.0.113.9,", "10.0.0.1"),
    ])
    func `The client is the last address that is not a trusted proxy`(forwardedFor: String?, client: String) throws {
        let proxies = TrustedProxies(try ["10.0.0.0/8", "192.0.2.7"].map { try #require(AddressRange($0)) })
        let peer = try #require(IPAddress("10.0.0.1"))
        #expect(proxies.client(of: peer, forwardedFor: forwardedFor).description == client)
    }

    @Test func `A peer that is not trusted is the client`() throws {
        let proxies = TrustedProxies([try #require(AddressRange("10.0.0.0/8"))])
        for (proxies, address) in [(proxies, "11.0.0.1"), (TrustedProxies(), "10.0.0.1"), (proxies, "::1")] {
            let peer = try #require(IPAddress(address))
            #expect(proxies.client(of: peer, forwardedFor: "203.0.113.9") == peer)
        }
    }
}
