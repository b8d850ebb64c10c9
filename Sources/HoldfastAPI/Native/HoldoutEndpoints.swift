import Bucketing
import HTTPServer
import HoldfastCore
import JSON
import Storage

extension HoldoutChange: ElementChange {}

extension Holdout: DefinedElement {
    typealias Change = HoldoutChange

    static var noun: String { "holdout" }
    static var list: StaticString { "holdouts" }
    static var copiedMembers: [String] { [] }
    static var putAction: AuditAction { .holdoutPut }
    static var deleteAction: AuditAction { .holdoutDelete }

    func searchedTexts(_ definitions: ProjectDefinitions) -> [String] { [] }
    static func find(_ key: Identifier, in datafile: Datafile) -> Holdout? {
        datafile.holdout(keyOrID: key).flatMap { $0.isOwn && $0.key == key ? $0 : nil }
    }
    static func all(in datafile: Datafile) -> [Holdout] { datafile.holdouts.filter(\.isOwn) }

    static func remove(_ key: Identifier, from definitions: inout ProjectDefinitions) throws(CoreError) {
        guard definitions.removeHoldout(key) else {
            throw DefinitionEndpoints<Holdout>.unknown(key.string, in: nil)
        }
    }
}
