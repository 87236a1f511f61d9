import { useMemo } from "react";
import { useSession } from "../session";

/** ink is black or white, whichever can be read on a colour of the form #rrggbb: one of them has a contrast of 4.5 on every colour. */
export function ink(hex: string): "black" | "white" {
	const [r, g, b] = [1, 3, 5].map((i) => {
		const c = Number.parseInt(hex.slice(i, i + 2), 16) / 255;
		return c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4;
	}) as [number, number, number];
	const light = 0.2126 * r + 0.7152 * g + 0.0722 * b;
	return (light + 0.05) / 0.05 > 1.05 / (light + 0.05) ? "black" : "white";
}

/** hexOf is a colour that CSS knows by a word or by digits, as #rrggbb; undefined where it knows none. */
function hexOf(colour: string): string | undefined {
	const pen = document.createElement("canvas").getContext("2d");
	if (!pen || !CSS.supports("color", colour)) return undefined;
	pen.fillStyle = colour;
	return pen.fillStyle.startsWith("#") ? pen.fillStyle : undefined;
}

/** EnvLabel is the label of the environment, such as PRODUCTION, in its colour. */
export function EnvLabel() {
	const { label } = useSession();
	const colour = label?.colour;
	const style = useMemo(() => {
		const hex = colour && hexOf(colour);
		return hex ? { background: hex, color: ink(hex) } : undefined;
	}, [colour]);
	if (!label) return null;
	return (
		<span className="env" style={style}>
			{label.text}
		</span>
	);
}
