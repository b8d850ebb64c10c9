import Bucketing
import Foundation
import JSON
import Testing

/// Reads the vectors made with the reference SDK, see `Vectors/README.md`.
enum Vectors {
    static func lines(_ name: String) throws -> [JSONObject] {
        try bytes(name).split(separator: UInt8(ascii: "\n")).map { line in
            try #require(try JSONParser().parse(Array(line)).object)
        }
    }

    static func datafile(_ name: String) throws -> Datafile {
        try Datafile(try JSONParser().parse(try bytes(name)))
    }

    private static func bytes(_ name: String) throws -> [UInt8] {
        let url = try #require(Bundle.module.url(forResource: "Vectors/\(name)", withExtension: nil))
        return [UInt8](try Data(contentsOf: url))
    }
}

extension JSONObject {
    func string(_ key: String) throws -> String {
        try #require(self[key]?.string)
    }

    func object(_ key: String) throws -> JSONObject {
        try #require(self[key]?.object)
    }
}
