import Bucketing
import Definitions
import Foundation
import TestSupport
import Testing

@testable import HoldfastCore

@Suite struct ProfileInputTests {
    /// What the body is by the parser alone, and what by the quick scanner where that takes it.
    private func read(
        _ text: [UInt8], pathUserID: Identifier? = nil
    ) -> (parsed: ProfileInput?, scanned: ProfileInput?) {
        text.withUnsafeBytes { bytes in
            let parsed = (try? JSONInput.parse(bytes)).flatMap { try? ProfileInput($0, pathUserID: pathUserID) }
            return (parsed, PlainProfileScanner.scan(bytes, pathUserID: pathUserID))
        }
    }

    @Test(arguments: [
        #"{"user_id":"u","experiment_bucket_map":{"2":{"variation_id":"b"},"1":{"variation_id":"a"}}}"#,
        #"{ "experiment_bucket_map" : { } , "user_id" : " ~ " }"#,
        "{\n\t\"user_id\": \"u\",\r\n\t\"experiment_bucket_map\": {\"e\": {\"variation_id\": \"v\"}}\n}",
    ])
    func `The usual forms are read by the scanner, as the parser reads them`(text: String) throws {
        let (parsed, scanned) = read(Array(text.utf8))
        #expect(parsed != nil)
        #expect(scanned?.userID == parsed?.userID)
        #expect(scanned?.assignments == parsed?.assignments)
    }

    @Test(arguments: [
        #"{"user_id":"u"}"#, #"{"user_id":"","experiment_bucket_map":{}}"#,
        #"{"user_id":"\u0061","experiment_bucket_map":{}}"#,
        #"{"user_id":"é","experiment_bucket_map":{}}"#, #"{"user_id":"u","user_id":"u","experiment_bucket_map":{}}"#,
        #"{"user_id":"u","experiment_bucket_map":{},"more":1}"#, #"{"user_id":"u","experiment_bucket_map":{}} x"#,
        #"{"user_id":"u","experiment_bucket_map":{"a-b":{"variation_id":"v"}}}"#,
        #"{"user_id":"u","experiment_bucket_map":{"e":{"variation_id":"v"},"e":{"variation_id":"w"}}}"#,
        #"{"user_id":"u","experiment_bucket_map":{"f":{"variation_id":"v"},"e":{"variation_id":"v"},"f":{"variation_id":"w"}}}"#,
        #"{"user_id":"u","experiment_bucket_map":{"e":{"variation_id":"v","variation_id":"w"}}}"#,
    ])
    func `Other forms are left to the parser`(text: String) {
        #expect(read(Array(text.utf8)).scanned == nil)
    }

    @Test func `A body may leave out the user that the path names, and must agree with it`() throws {
        let map = #""experiment_bucket_map":{"e":{"variation_id":"v"}}"#
        for body in ["{\(map)}", #"{"user_id":"u",\#(map)}"#] {
            let (parsed, scanned) = read(Array(body.utf8), pathUserID: "u")
            #expect(parsed?.userID == "u" && scanned?.userID == "u")
            #expect(scanned?.assignments == parsed?.assignments)
        }
        #expect(read(Array("{\(map)}".utf8)).scanned == nil)
        #expect(read(Array(#"{"user_id":"other",\#(map)}"#.utf8), pathUserID: "u").scanned == nil)
    }

    @Test(arguments: 0..<4 as Range<UInt64>)
    func `What the scanner takes, the parser takes, and both read the same`(seed: UInt64) {
        var random = SeededGenerator(seed: seed)
        let whole = Array(
            #"{"user_id":"user1","experiment_bucket_map":{"10001":{"variation_id":"v1"}, "e":{"variation_id":"70011"}}}"#
                .utf8)
        let pieces = Array(" \n\"{}:,\\u0041é\0user_id experiment_bucket_map variation_id 10001".utf8)
        var taken = 0
        for _ in 0..<20_000 {
            var text = whole
            for _ in 0..<Int.random(in: 0...3, using: &random) {
                let place = Int.random(in: 0..<text.count, using: &random)
                switch Int.random(in: 0..<3, using: &random) {
                case 0: text[place] = pieces.randomElement(using: &random) ?? 0
                case 1: text.remove(at: place)
                default: text.insert(pieces.randomElement(using: &random) ?? 0, at: place)
                }
            }
            let (parsed, scanned) = read(text, pathUserID: seed % 2 == 0 ? nil : "user1")
            guard let scanned else { continue }
            taken += 1
            #expect(
                scanned.userID == parsed?.userID && scanned.assignments == parsed?.assignments,
                "\(String(decoding: text, as: UTF8.self))")
        }
        #expect(taken > 1_000)
    }
}
