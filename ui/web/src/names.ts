/** isName tells whether a text can name a queue, a kind, a cron or a limiter, and so whether such a name can begin with it. */
export const isName = (text: string): boolean => /^[0-9A-Za-z][0-9A-Za-z._:-]{0,127}$/.test(text);

/** What a name must be. */
export const nameRule = "must be letters, digits and . _ : - and begin with a letter or a digit";
