"""Words in the headers and cells of spreadsheets, in the languages in which people write them."""

# ruff: noqa: RUF001

import re
import unicodedata
from collections.abc import Collection
from itertools import permutations


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


# Headers in lower case without blanks and punctuation, the most specific first.
PICTURE = _words("""
    file filename filepath fname path fullpath imagepath imgpath imagefile imgfile imagefilename imagename
    imgname image images img picture photo pic frame imageurl imageuri gcsuri uri url name imageindex
    imageid imgid id bild bilddatei bildname bildpfad datei dateiname dateipfad pfad foto aufnahme
    rowlabels zeilenbeschriftungen fichier nomfichier nomdufichier chemin imagen archivo ruta nombre
    imagem arquivo caminho immagine nomefile файл имяфайла изображение путь имя 图片 图像 文件
    文件名 路径 圖片 画像 画像名 ファイル ファイル名 이미지 파일 파일명 plik zdjęcie soubor snímek obrázek
    dosya resim fájl fájlnév kép tiedosto kuva bestand bestandsnaam afbeelding filnamn fil bilde filnavn
    billede зображення fotografie fotoğraf
""")
LABELS = _words("""
    labels label tags tag classes class classname classnames labelname labelnames category categories
    categoryname annotation annotations choice choices findinglabels regionattributes target targets
    object objects species breed defect defects scientificname commonname taxon taxonname answer answers
    antwort antworten response keywords keyword stichwort stichworte diagnosis type finding findings
    dx truth groundtruth gt truelabel trueclass actual regions classificationannotation
    classificationannotations classid labelid categoryid klasse klassen kategorie kategorien fehler
    fehlerart defekt defekte
    merkmale schlagwort schlagworte schlagwörter etikett etiketten beschriftung classe étiquette
    étiquettes etiquette catégorie catégories défaut défauts clase clases etiqueta etiquetas categoría
    categoria categorías categorias defecto defectos classi etichetta etichette difetto difetti rótulo
    rótulos класс классы метка метки категория теги espèce espèces espece especes especie especies
    espécie espécies specie art arten spezies tierart soort вид fehlercode fehlercodes fehlerarten
    fehlerklasse fehlertyp fault faults faultcode faultcodes faulttype errorcode defectcode defectcodes
    defecttype defectclass codedefaut codedéfaut codigodefecto códigodefecto дефект
    标签 标记 类别 類別 分类 缺陷
    ラベル クラス 分類 カテゴリ カテゴリー タグ 種類 欠陥 라벨 레이블 클래스 분류 태그
    etykieta etykiety klasa gatunek štítek štítky třída druh etiket etiketler sınıf tür kategori címke
    címkék osztály faj kategória luokka laji tunniste klass etikett tagg merke мітка вид loài kelas befund
    befunde
""")
# Labels that say that a picture shows no class, as `header_key` writes them.
NOTHING = {
    *_words("""
    none noneofthese noneoftheabove noneofthem nothing nolabel nolabels notag notags noclass noobject
    noobjects null nan na nil nichts nichtsdavon keine keiner keines keins keinedavon keinerdavon
    keinesdavon keinsdavon keintier noanimal noanimals nofinding nofindings keinbefund nonedetected
    nothinghere aucun aucune rien
    ninguno ninguna nada nessuno nessuna niente nenhum nenhuma нет ничего 无 没有 なし 없음
    ob ohnebefund blank background hintergrund nodefect nodefects defectfree fehlerfrei keinfehler empty
    leer leere vide
    vacío vacio vuoto vazio ok okay io good gut normal negative negatives negativ
""")
}
# Labels that may say so, or that nobody knows, and may as well be classes.
DOUBTFUL = {
    *_words("""
    fond fondo other others andere anderes sonstige sonstiges autre autres otro otros altro outro
    unknown unsure unclear unidentified dontknow unbekannt unsicher unklar weißnicht weissnicht inconnu
    unclassified unlabeled unlabelled notlabeled notlabelled tobechecked tocheck todo tbd pending
    unidentifiable unbestimmt
""")
}
# Of these, those that say that nobody knows.
NOBODY_KNOWS = DOUBTFUL - {
    *_words("""
    fond fondo other others andere anderes sonstige sonstiges autre autres otro otros altro outro
    """)
}
# In headers of labels that replace those of another column.
CORRECTED = {
    *_words("""
    corrected correction korrektur korrigiert final revised new neu neue consensus konsens agreed gold
    corrigé corregido corretto
    """)
}
# In headers of columns that say who answered.
RATERS = {
    *_words("""
    user username annotator rater worker labeler labeller tagger observer reviewer respondent volunteer
    expert beobachter prüfer bewerter annotateur
    """)
}
UNKNOWN = ("unknown", "unsure", "unbekannt")
# Beside a class in each line: whether the picture shows it, as of Open Images, or how many were counted.
CONFIRMED = _words("""
    confidence present presence value shown visible detected count counts number anzahl nombre
    abundance individualcount cantidad aantal
""")
FOLDERS = _words("""
    relativepath relpath folder foldername subfolder dir dirname directory ordner unterordner verzeichnis
    dossier carpeta cartella pasta
""")
# Of LABELS, those that do not count beside other words: dx_type is no list of labels.
VAGUE = {
    *_words("type object objects target targets answer answers antwort antworten response actual regions")
}
# In headers of numbers or codes of classes, beside which another column may have their names.
CODES = {*_words("code codes id nr no number nummer kürzel")}
# Headers that may name what pictures show, where no other does.
THINGS = {
    *_words("""
    animal animals tier tiere plant plants pflanze pflanzen bird birds vogel vögel fish insect insects item
    items subject subjects daño daños dommage dommages dégât dégâts danno danni content contents inhalt
    motiv motive damage schaden schäden mangel mängel thing things disease
    diseases fruit product part dier dyr djur zvíře zwierzę животное animale animaux animales planta fund
    """)
}
# Beside these, `class` is a rank such as Mammalia, and `species` may be the second word of a name.
RANKS = {*_words("kingdom phylum order family genus")}
NAMES_OF_SPECIES = _words("commonname scientificname taxonname vernacularname")
SCORES = _words("confidence score scores probability prob certainty likelihood konfidenz wahrscheinlichkeit")
CORNERS = (
    ("xmin", "ymin", "xmax", "ymax"),
    ("x1", "y1", "x2", "y2"),
    ("x0", "y0", "x1", "y1"),
    ("left", "top", "right", "bottom"),
    ("minx", "miny", "maxx", "maxy"),
    ("bboxx1", "bboxy1", "bboxx2", "bboxy2"),
    ("bboxxmin", "bboxymin", "bboxxmax", "bboxymax"),
    ("roix1", "roiy1", "roix2", "roiy2"),
)
CORNER_AND_SIZE = (
    ("x", "y", "w", "h"),
    ("bboxx", "bboxy", "bboxw", "bboxh"),
    ("bboxx", "bboxy", "bboxwidth", "bboxheight"),
    ("left", "top", "width", "height"),
)
YES = {
    *_words("""
    1 1.0 x + present vorhanden présent presente ✓ ✔ ✗ true yes y t ja j wahr oui vrai si sí sim да vero
    checked ☑ ✅ 是 有 はい あり ○ 〇 ◯ ◎ ● 예 있음 tak ano evet igen kyllä так ✘ ✕ ×
""")
}
NO = {
    "",
    *_words("""
    0 0.0 absent fehlt ausente assente abwesend false no n f nein falsch non faux não нет - nan falso
    unchecked ☐ ❌ 否 无 無 いいえ なし 아니오 없음 nie ne hayır nem ei nej nee nei ні
"""),
}
MAYBE = {
    "?",
    "??",
    "-1",
    "-1.0",
    *_words("maybe unsure uncertain unclear vielleicht unsicher unklar incertain incierto"),
    *_words("unknown unbekannt inconnu desconocido"),
}  # -1 is uncertain where there are 0 and 1, too, as in CheXpert

# Crosses say no where other cells of the table have ticks or circles.
TICKS = {*_words("✓ ✔ ☑ ✅ ○ 〇 ◯ ◎ o")}
CROSSES = {*_words("✗ ✘ ✕ × x")}
MISSING = {*_words("na n/a")}  # no where a table has no other no, else unknown
_NOT = {*_words("not no non nicht kein keine keinen nie не pas sin sem senza niet inte ikke")}
_OPPOSITES = (("positive", "negative"), ("positiv", "negativ"), ("pos", "neg"), ("p", "n"))

# Words in the header of a column that is about the picture or the work on it, not about what it shows.
_ABOUT = {
    *_words("""
    observer beobachter beobachterin observateur observatrice observador osservatore remarque remarques
    who wer qui quién user username annotator annotated worker labeler labeller tagger tagged labeled
    author autor auteur photographer fotograf fotografin assignee person by von durch initials kürzel
    team operator inspector owner name names prüfer prüferin bearbeiter bearbeiterin email mail role
    date datum fecha day time timestamp zeit uhrzeit zeitstempel created updated modified erstellt
    geändert year jahr month monat age alter camera kamera device gerät location ort standort place lieu
    lugar gps lat lon lng latitude longitude site city stadt halle room raum source quelle license
    lizenz copyright batch charge linie line los lot schicht shift maschine machine anlage station
    auftrag order serial width height size breite höhe größe status state statut estado note notes
    creator rights publisher sheet wind temp temperature temperatur humidity prediction predicted pred
    vorhersage weather wetter
    habitat biotop lebensraum observador autore autor
    fotoğrafçı szerző kuvaaja 担当者 标注人 작성자 waarnemer
    comment comments kommentar kommentare bemerkung bemerkungen anmerkung anmerkungen remark remarks
    notiz notizen description beschreibung commentaire comentario priority priorität id
""")
}
# And of a column of yes and no that is not that of a class.
_REVIEWED = {
    *_words("""
    reviewed checked verified validated approved done ok geprüft fertig erledigt
    """)
}
# And of one of yes and no that is about how a picture was made.
_MADE = {
    *_words("""
    public featured portable blurry isblurry blurred unscharf usable brauchbar truncated occluded difficult
    duplicate night isnight deleteflag
    """)
}
TOTALS = {
    *_words("total totals subtotal zwischensumme grandtotal sum count summe gesamt gesamtergebnis anzahl")
}
_BLANK = ("(blank)", "(leer)", "(vide)", "(en blanco)")  # of a pivot table of Excel: lines without a label
PIVOT = ("columnlabels", "spaltenbeschriftungen", "étiquettesdecolonnes", "etiquetasdecolumna")


def is_nothing(label: str) -> bool:
    """Whether a label is a word of no class, behind a prefix such as that of `data.nothing_here`, too."""
    return bool({header_key(label), header_key(label.rpartition(".")[2])} & NOTHING)


def allows_several(header: str) -> bool:
    """Whether a header allows several names in a cell: a plural such as "tags", or no header."""
    key = header_key(header)
    plural = key.endswith(("s", "wörter", "worte", "klassen", "etiketten", "теги", "метки"))
    return not header or (plural and not key.endswith(("species", "spezies", "class", "diagnosis", "genus")))


def header_key(text: str) -> str:
    """A header without capitals, blanks and punctuation, as the words above are."""
    return re.sub(r"[\W_]+", "", unicodedata.normalize("NFC", text)).casefold()


def words_of(header: str) -> set[str]:
    apart = re.sub(r"([a-z])([A-Z])", r"\1 \2", unicodedata.normalize("NFC", header))  # labelName
    return {*re.findall(r"[^\W\d_]+", apart.casefold())}


def denial(answers: Collection[str]) -> str:
    """Which of two answers says no, as `not found` beside `found` does; "": neither, or there are not two."""
    for yes, no in permutations(answers) if len(answers) == 2 else ():
        if (yes.casefold(), no.casefold()) in _OPPOSITES or (
            words_of(no) - words_of(yes) <= _NOT and words_of(yes) < words_of(no)
        ):
            return no
    return ""


def is_about(header: str) -> bool:
    """Whether a column is about the picture or the work on it: who tagged it, when, with what remarks."""
    return bool(words_of(header) & (_ABOUT | _REVIEWED)) or is_no_class(header)


def is_review(header: str) -> bool:
    """Whether a column of yes and no is about the labels of its line: `verified`, `correct (y/n)`."""
    return bool(words_of(header) & (_REVIEWED | {"correct", "right", "valid", "korrekt", "richtig"}))


def is_no_class(header: str) -> bool:
    """Whether a column of yes and no, or of counts, cannot be that of a class: `Reviewed`, `Grand Total`."""
    return header.casefold() in _BLANK or header_key(header) in _REVIEWED | _MADE | TOTALS
